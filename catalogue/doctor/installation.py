"""What is installed, held and set on this machine, without asking anybody."""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from catalogue.doctor.doctor_findings import Seen
from catalogue.errors import CatalogueError
from catalogue.formatting import number, plural, size
from catalogue.settings import Settings, config_file, install_command, package_version
from catalogue.source.open import credentials_from, environment_settings
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.mounts import remote_kind

_LIBRARIES = ("pyarrow", "duckdb", "pandas", "numpy", "aiohttp", "click", "filelock", "sqlitedict", "warcio")
EXTRAS = {
    "s3": (("s3fs",), "s3:// as a source"),
    "dask": (("dask", "distributed"), "--scheduler, and to_dask()"),
    "iceberg": (("pyiceberg",), "export iceberg"),
    "text": (("feedparser", "resiliparse"), "fetch --format text and metadata"),
    "shell": (("duckdb-cli",), "the shell that catalogue sql opens"),
    "lake": (
        ("duckdb-extension-ducklake", "duckdb-extension-httpfs"),
        "captures in SQL without a download of DuckDB's",
    ),
    "serve": (("starlette", "uvicorn", "jinja2"), "catalogue serve"),
    "notebook": (("jupyterlab", "ipykernel", "matplotlib"), "the notebooks"),
}
"""Of this package: what each installs, and what it is for."""
_LITTLE_ROOM = 1_000_000_000
"""Bytes, in which the footers of some forty crawls fit."""


def look_here(
    data: Path, store: Path, catalogue: Path, settings: Settings, source: PoliteSource | None
) -> tuple[Seen, ...]:
    """What can be seen without a request.

    Args:
        data: the folder.
        store: its store, which need not be there.
        catalogue: its DuckDB file, likewise.
        settings: in force.
        source: by which the source would be asked; None if it cannot be.
    """
    return (*_installed(), *_held(data, store, catalogue), *_set(settings, source))


def _installed() -> Iterator[Seen]:
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}, {plural(os.cpu_count() or 1, 'core')}"
    yield Seen("catalogue", f"{package_version()}, Python {platform.python_version()}")
    yield Seen("machine", machine)
    yield Seen("libraries", ", ".join(f"{name} {_version(name) or 'is missing'}" for name in _LIBRARIES))
    there, lacking = [], []
    for name, (needs, adds) in EXTRAS.items():
        versions = [_version(each) for each in needs]
        if all(versions):
            there.append(f"{name} ({', '.join(map(' '.join, zip(needs, map(str, versions), strict=True)))})")
        else:
            lacking.append(f"{name}: {adds}")
    if there:
        yield Seen("extras", ", ".join(there))
    for each in lacking:
        name = each.partition(":")[0]
        yield Seen("extra lacking", each, f"{install_command(name)} adds it")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _held(data: Path, store: Path, catalogue: Path) -> Iterator[Seen]:
    place = next(each for each in (data.absolute(), *data.absolute().parents) if each.exists())
    free = shutil.disk_usage(place).free
    kind = remote_kind(place)
    where = f", on a network file system ({kind})" if kind else ""
    means = "locks may not hold there: let one machine at a time use it" if kind else ""
    if free < _LITTLE_ROOM:
        means = "little room: a crawl's footers take some 25 MB, the cache as much as it is allowed"
    yield Seen(
        "data folder",
        f"{data.absolute()}{'' if data.exists() else ' (not there yet)'}, {size(free)} free{where}",
        means,
    )
    if not store.exists():
        yield Seen(
            "store", f"{store.absolute()}: none yet", "nothing can be asked before: catalogue harvest --crawl latest"
        )
        return
    try:
        with Store(store, busy_seconds=1.0) as opened:
            counts = f"{plural(opened.count('files'), 'footer')}, {plural(opened.count('failures'), 'failure')}"
            yield Seen(
                "store", f"{store.absolute()}: {size(opened.size())}, of it {size(opened.log_size())} log; {counts}"
            )
    except CatalogueError as error:
        yield Seen("store", f"cannot be opened: {error}", "nothing can be asked before it can")
    if catalogue.exists():
        yield Seen("catalogue file", f"{catalogue.absolute()}: {size(catalogue.stat().st_size)}")
    else:
        yield Seen("catalogue file", "none yet", "the next question makes it of the store, without a request")


def _set(settings: Settings, source: PoliteSource | None) -> Iterator[Seen]:
    if source:
        policy = source.limiter.policy
        rate = "any number of" if policy.rate is None else f"at most {policy.rate:g}"
        slower = source.limiter.rate
        now = f", at present {slower:g}" if slower and policy.rate and slower < policy.rate else ""
        means = "it asked to be asked more slowly; the rate grows again by itself" if now else ""
        yield Seen("politeness", f"{rate} requests a second{now}; {source.connections} connections", means)
    lacks_contact = settings.asks_strangers and not settings.contact
    means = "with --contact Common Crawl could write to you before it has to block you" if lacks_contact else ""
    yield Seen("contact", "set" if settings.contact else "none", means)
    config = config_file()
    yield Seen("config", f"{config}{'' if config.exists() else ' (not there)'}")
    cache = f"{settings.cache}, {size(settings.cache_size)} at most" if settings.cache_size else "none is kept"
    yield Seen("cache of pages", cache, "" if settings.cache_size else "what is asked again is read again")
    for name, value in environment_settings().items():
        yield Seen("environment", f"{name}={value}")
    if settings.source.startswith("s3:"):
        found = credentials_from()
        means = "" if found else "S3 refuses who has none; set them up (aws configure), or use the default source"
        yield Seen("credentials", f"found, by {found}" if found else "none were found", means)


def latencies(settings: Settings) -> str:
    """By which numbers plans choose between requests and bytes."""
    return f"{number(round(settings.latency * 1000))} ms and {size(settings.bandwidth)}/s"
