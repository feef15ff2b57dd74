"""An address → a source that asks it politely."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from catalogue.errors import QueryError
from catalogue.settings import Settings
from catalogue.source.folder import FolderSource
from catalogue.source.http import HttpSource
from catalogue.source.limiter import COMMON_CRAWL, S3_COMMON_CRAWL, Clock, Limiter, Policy, SystemClock
from catalogue.source.polite import ATTEMPTS, PoliteSource
from catalogue.source.response import Source

_COMMON_CRAWL_HOSTS = ("commoncrawl.org", "ds5q9oxwqwsfj.cloudfront.net")


def open_source(
    url: str,
    settings: Settings,
    *,
    clock: Clock | None = None,
    notify: Callable[[str], None] = lambda _: None,
    attempts: int = ATTEMPTS,
) -> PoliteSource:
    """Open an https, http or s3 address, or a folder.

    Raises:
        QueryError: if it is none of these.
    """
    parts = urlsplit(url)
    policy = _policy(url, settings)
    inner: Source
    if parts.scheme in {"http", "https"}:
        if parts.query or parts.fragment or parts.username or not parts.hostname:
            message = f"a source is an address without query or credentials, such as {settings.source}"
            raise QueryError(message)
        address = url if url.endswith("/") else url + "/"
        inner = HttpSource(address, user_agent=settings.user_agent, connections=policy.connections)
    elif parts.scheme == "s3":
        try:
            from catalogue.source.s3 import S3Source  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            message = f"{url} needs s3fs; run: pip install 'commoncrawl-catalogue[s3]'"
            raise QueryError(message) from error
        address = url if url.endswith("/") else url + "/"
        inner = S3Source(address, user_agent=settings.user_agent, connections=policy.connections)
    elif Path(url).is_dir():
        inner = FolderSource(Path(url))
    else:
        message = f"{url!r} is no folder and no http, https or s3 address; the usual source is {settings.source}"
        raise QueryError(message)
    file = settings.cache / f"{parts.hostname}.json" if policy.rate is not None else None
    return PoliteSource(
        inner, Limiter(policy, clock=clock or SystemClock(), file=file), notify=notify, attempts=attempts
    )


def _policy(url: str, settings: Settings) -> Policy:
    host = urlsplit(url).hostname or ""
    policy = Policy()
    if any(host == known or host.endswith("." + known) for known in _COMMON_CRAWL_HOSTS):
        policy = S3_COMMON_CRAWL if url.startswith("s3:") else COMMON_CRAWL
    elif url.startswith("s3:"):
        policy = S3_COMMON_CRAWL if host == "commoncrawl" else Policy(connections=32)
    return replace(
        policy,
        rate=settings.rate or policy.rate,
        connections=settings.connections or policy.connections,
        slow_down=policy.slow_down if settings.patience is None else settings.patience,
    )
