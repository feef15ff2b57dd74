"""Open the source of an address, of which a folder is the simplest."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from os.path import isdir
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from catalogue.errors import (
    CatalogueError,
    Forbidden,
    NotFound,
    QueryError,
    SourceUnavailable,
    Unreachable,
    WrongLength,
)
from catalogue.formatting import without_secrets
from catalogue.settings import DEFAULT_SOURCE, Host, Settings, needing
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Request, RequestedRange, Response, Source
from catalogue.source.observe import Observer, RequestLimit, hide_credentials
from catalogue.source.rate_limit import COMMON_CRAWL, ELSEWHERE, S3_COMMON_CRAWL, Clock, Limiter, Policy
from catalogue.source.retry import ATTEMPTS, PoliteSource

_ENVIRONMENT = (
    *(name for proxy in ("http_proxy", "https_proxy", "no_proxy") for name in (proxy, proxy.upper())),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"),
)
"""Variables that change how a source is reached or trusted."""
_COMMON_CRAWL_HOSTS = (".commoncrawl.org", ".ds5q9oxwqwsfj.cloudfront.net")


def open_source(
    url: str,
    settings: Settings,
    *,
    clock: Clock | None = None,
    notify: Callable[[str], None] = lambda _: None,
    attempts: int = ATTEMPTS,
    max_wait: float = math.inf,
    observer: Observer | None = None,
    limit: RequestLimit | None = None,
) -> PoliteSource:
    """Open an address, a folder, or the hosts of the settings; other arguments are those of ``PoliteSource``.

    Raises:
        QueryError: if the address is none of these, or an extra is not installed.
    """
    options = {"notify": notify, "attempts": attempts, "max_wait": max_wait, "observer": observer, "limit": limit}
    hosts = settings.hosts if url == settings.source and settings.hosts else (Host("", url),)
    if len(hosts) == 1:
        return _open(hosts[0], settings, clock or Clock(), options)
    from catalogue.source.several_hosts import SeveralHosts  # noqa: PLC0415 - few need it

    opened = [_open(host, settings, clock or Clock(), options) for host in hosts]
    return SeveralHosts(hosts, opened, **options)


def _open(host: Host, settings: Settings, clock: Clock, options: dict[str, Any]) -> PoliteSource:
    url = host.address
    parts = urlsplit(url if "://" in url else "")
    name = (parts.hostname or "").rstrip(".")  # "example.com." is the same host
    policy = _policy(parts.scheme, name, settings, host)
    file = settings.cache / f"{name}.json" if policy.rate is not None and parts.hostname else None
    limiter = Limiter(policy, clock=clock, file=file)
    root = f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('/')}/"
    source: Source
    if parts.scheme in {"http", "https"}:
        from catalogue.source.http import HttpSource  # noqa: PLC0415 - slow to import, and a plan needs no network

        if host.redirects:
            from catalogue.source.redirects import RedirectedSource, RedirectingSource  # noqa: PLC0415 - few need it

            inner = RedirectingSource(
                root, host.redirects, user_agent=settings.user_agent, connections=policy.connections
            )
            files = Limiter(policy, clock=clock, file=file and file.with_suffix(".files.json"))
            return RedirectedSource(inner, files, limiter, **options)
        source = HttpSource(root, user_agent=settings.user_agent, connections=policy.connections)
    elif parts.scheme == "s3":
        with needing("s3", url):
            from catalogue.source.s3 import S3Source  # noqa: PLC0415 - an extra, and slow to import
        source = S3Source(root, user_agent=settings.user_agent, connections=policy.connections)
    elif isdir(url):  # noqa: PTH112 - that of Path raises an error for long names
        source = FolderSource(Path(url))
    else:
        shown, such_as = repr(url[:200]), f"an https, http or s3 address such as {DEFAULT_SOURCE}"
        if url and "://" not in url:
            raise QueryError(f"there is no folder {shown}; name one that exists, or {such_as}")
        raise QueryError(f"invalid source {shown}; use a folder, or {such_as}")
    return PoliteSource(source, limiter, **options)


def environment_settings() -> dict[str, str]:
    """Return the environment variables that change how a source is reached, without secrets."""
    return {name: _open_part(value) for name in _ENVIRONMENT if (value := os.environ.get(name))}


def _open_part(value: str) -> str:
    """Return an address without path and credentials, even if a password contains a slash."""
    scheme, slashes, rest = value.rpartition("://") if value.count("://") == 1 else ("", "", value)
    return without_secrets(f"{scheme}{slashes}{rest.rpartition('@')[2]}")


def credentials_from() -> str | None:
    """Return the AWS SDK's name for the place of its credentials, if it finds any.

    The SDK may send a request to the cloud's metadata service.
    """
    try:
        from botocore.session import Session  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return None
    hide_credentials()
    try:
        credentials = Session().get_credentials()
    except Exception:  # noqa: BLE001 - it may run programs and open files, and raises their errors
        return None
    return str(credentials.method) if credentials else None


def _policy(scheme: str, host: str, settings: Settings, rules: Host) -> Policy:
    policy = Policy()
    if scheme == "s3":
        policy = S3_COMMON_CRAWL if host == "commoncrawl" else Policy(connections=32)
    elif f".{host}".endswith(_COMMON_CRAWL_HOSTS):
        policy = COMMON_CRAWL if settings.hosts else replace(COMMON_CRAWL, elsewhere=ELSEWHERE)
    rate = rules.rate or policy.rate
    # For several hosts, the setting is a limit for each of them.
    rate = min(settings.rate, rate) if settings.rate and rate and settings.hosts else settings.rate or rate
    policy = replace(
        policy,
        rate=rate,
        burst=min(policy.burst, math.ceil(2 * rate)) if rate else policy.burst,
        connections=settings.connections or policy.connections,
        slow_down=policy.slow_down if settings.patience is None else settings.patience,
    )
    return policy.within(*rules.quota) if rules.quota else policy


class FolderSource:
    """Files below a folder, with ETags made of size and modification time."""

    def __init__(self, folder: Path, *, connections: int = 4) -> None:
        self._folder = folder.resolve()
        self.url = self._folder.as_uri() + "/"
        self.connections = connections
        self._closed = False

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        file = self._folder / path
        request = Request(f"{file}", requested, pin)
        if self._closed:
            raise SourceUnavailable(f"{self.url} was closed")
        try:
            # A pipe is not opened: that would block.
            is_inside = ".." not in file.parts and file.is_relative_to(self._folder)
            if is_inside and S_ISREG(file.stat().st_mode):
                with file.open("rb") as opened:
                    return _read(opened, request)
        except CatalogueError:
            raise
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
            pass
        except PermissionError as error:
            raise Forbidden(f"{request.where} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise Unreachable(f"{request.where} cannot be read: {error.strerror}") from error
        raise NotFound(f"{request.where} does not exist")

    def close(self) -> None:
        self._closed = True


def _read(file: BinaryIO, request: Request) -> Response:
    status = os.fstat(file.fileno())
    size, etag = status.st_size, f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
    start, end = 0, size
    match request.requested:
        case None:
            request.check_document(size)
        case SuffixRange(length):
            start = max(0, size - length)
        case ByteRange(first, last):
            start, end = first, min(last, size)
    if request.requested is not None and start >= end:
        raise request.refuse(416, {"content-range": f"bytes */{size}"}, "")
    request.check_version(size, etag)
    if isinstance(request.requested, ByteRange) and end < request.requested.end:
        raise request.is_shorter()
    file.seek(start)
    body = file.read(end - start)
    if len(body) != end - start:  # the file was cut since then
        raise WrongLength(f"{request.where}: received {len(body):,} bytes; expected {end - start:,}")
    return Response(body, start, size, etag, None)
