"""What is installed, stored and set on this machine; no request is made."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from catalogue.doctor.diagnosis import Observation
from catalogue.errors import CatalogueError
from catalogue.formatting import plural, size
from catalogue.parquet import footer
from catalogue.settings import Settings, config_file, install_command, package_version
from catalogue.source.open import credentials_from, environment_settings
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.mounts import remote_kind

LIBRARIES = ("pyarrow", "duckdb", "pandas", "numpy", "click", "filelock", "sqlitedict", "warcio")
EXTRAS = {
    "s3": (("s3fs",), "s3:// as a source"),
    "dask": (("dask", "distributed"), "--scheduler, and to_dask()"),
    "iceberg": (("pyiceberg",), "export iceberg"),
    "text": (("feedparser", "resiliparse"), "fetch --format text and metadata"),
    "shell": (("duckdb-cli",), "the shell that catalogue sql opens"),
    "lake": (("duckdb-extension-ducklake", "duckdb-extension-httpfs"), "captures in SQL, without downloads by DuckDB"),
    "serve": (("fastapi", "uvicorn", "jinja2"), "catalogue serve"),
    "notebook": (("jupyterlab", "ipykernel", "matplotlib"), "the notebooks"),
}
"""The extras of this package: distributions and purpose."""
_LOW_SPACE = 1_000_000_000
"""Bytes; the footers of some forty crawls."""


def examine_installation(
    data: Path, store: Path, database: Path, settings: Settings, source: PoliteSource | None
) -> Iterator[Observation]:
    """Observe libraries, files and settings, without a request.

    Args:
        data: the data folder.
        store: path of the store, which may not exist.
        database: path of the metadata database, which may not exist.
        settings: the settings in use.
        source: the source; None if it cannot be opened.
    """
    yield Observation("catalogue", f"{package_version()}, Python {platform.python_version()}")
    cores = plural(os.cpu_count() or 1, "core")
    yield Observation("machine", f"{platform.system()} {platform.release()}, {platform.machine()}, {cores}")
    yield Observation("libraries", ", ".join(f"{name} {_version(name) or 'is missing'}" for name in LIBRARIES))
    compiled = not footer.__file__.endswith(".py")
    means = "" if compiled else "the wheels for Linux have it compiled, which is seven times as fast"
    yield Observation("footer decoder", "compiled" if compiled else "pure Python", means)
    yield from _extras()
    yield from _files(data, store, database)
    yield from _settings(settings, source)


def _version(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _extras() -> Iterator[Observation]:
    versions = {name: {each: _version(each) for each in needs} for name, (needs, _) in EXTRAS.items()}
    installed = [name for name, found in versions.items() if all(found.values())]
    if installed:
        listed = (f"{name} ({', '.join(f'{k} {v}' for k, v in versions[name].items())})" for name in installed)
        yield Observation("extras", ", ".join(listed))
    for name in EXTRAS.keys() - {*installed}:
        yield Observation("extra missing", f"{name}: {EXTRAS[name][1]}", f"{install_command(name)} adds it")


def _files(data: Path, store: Path, database: Path) -> Iterator[Observation]:
    existing = next(each for each in (data.absolute(), *data.absolute().parents) if each.exists())
    free, kind = shutil.disk_usage(existing).free, remote_kind(existing)
    means = "locks may not work there: use it from one machine at a time" if kind else ""
    if free < _LOW_SPACE:
        means = "little space: the footers of a crawl take 25 MB, the cache as much as it is allowed"
    where = f", on a network file system ({kind})" if kind else ""
    folder = f"{data.absolute()}{'' if data.exists() else ' (does not exist yet)'}"
    yield Observation("data folder", f"{folder}, {size(free)} free{where}", means)
    if not store.exists():
        yield Observation("store", f"{store.absolute()}: none yet", "run: catalogue harvest --crawl latest")
        return
    try:
        with Store(store, busy_seconds=1.0) as opened:
            counts = f"{plural(opened.count('files'), 'footer')}, {plural(opened.count('failures'), 'failure')}"
            sizes = f"{size(opened.size())}, of it {size(opened.log_size())} log"
            yield Observation("store", f"{store.absolute()}: {sizes}; {counts}")
    except CatalogueError as error:
        yield Observation("store", f"cannot be opened: {error}", "queries need it")
    if database.exists():
        yield Observation("catalogue file", f"{database.absolute()}: {size(database.stat().st_size)}")
    else:
        yield Observation("catalogue file", "none yet", "the next query builds it from the store, without a request")


def _settings(settings: Settings, source: PoliteSource | None) -> Iterator[Observation]:
    if source:
        usual, now = source.limiter.policy.rate, source.limiter.rate
        reduced = now if now and usual and now < usual else None
        rate = "any number of" if usual is None else f"at most {usual:g}"
        current = f", at present {reduced:g}" if reduced else ""
        means = "the source demanded a lower rate; it rises again by itself" if reduced else ""
        yield Observation("politeness", f"{rate} requests a second{current}; {source.connections} connections", means)
    anonymous = settings.asks_strangers and not settings.contact
    means = "with --contact Common Crawl can write to you before it has to block you" if anonymous else ""
    yield Observation("contact", "set" if settings.contact else "none", means)
    config = config_file()
    yield Observation("config", f"{config}{'' if config.exists() else ' (does not exist)'}")
    cache = f"{settings.cache}, {size(settings.cache_size)} at most" if settings.cache_size else "none"
    yield Observation("cache of pages", cache, "" if settings.cache_size else "pages are fetched again for each query")
    for name, value in environment_settings().items():
        yield Observation("environment", f"{name}={value}")
    if settings.source.startswith("s3:"):
        found = credentials_from()
        means = "" if found else "S3 needs credentials; set them up (aws configure), or use the default source"
        yield Observation("credentials", f"found, by {found}" if found else "none found", means)
