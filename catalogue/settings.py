"""Settings from options, environment variables, ``config.toml`` and defaults, in this order."""

import json
import math
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from platformdirs import user_cache_path, user_config_path, user_data_path

from catalogue.atomic_files import open_file
from catalogue.errors import QueryError
from catalogue.formatting import not_among

DEMO_SOURCE = "demo"
"""The source that is a miniature of Common Crawl's files, unless there is a folder of this name."""
DEFAULT_SOURCE = "https://data.commoncrawl.org/"
COLLINFO_SOURCE = "https://index.commoncrawl.org/"
"""Host of the list of crawls for the default source; others have it at their root."""
_LARGEST_FILE = 1 << 20
"""Bytes of ``config.toml``."""
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
STORE_NAME = "footers.sqlite"
_CACHES_OF_UV = ("archive-v", "builds-v", "environments-v")
"""Folders of the environments of ``uvx`` and ``uv run``."""


def config_file() -> Path:
    return user_config_path("catalogue") / "config.toml"


def default_data() -> Path:
    """Return ``./data`` if it has a store, else the data folder of the user."""
    here = Path("data")
    has_store = (here / STORE_NAME).is_file() or any(here.glob(f"*/{STORE_NAME}"))
    return here if has_store else user_data_path("catalogue")


def address(url: str) -> SplitResult:
    """Split the URL of a source; that of a folder has no scheme.

    Raises:
        QueryError: if the URL has no host, or a query or credentials, which the message does not repeat.
    """
    if is_folder(url):
        return SplitResult("", "", url, "", "")
    is_address = "://" in url
    try:
        parts = urlsplit(url)
        plain = set(url).isdisjoint("?#@ " if is_address else "?#@") and (url.isprintable() or not is_address)
        plain &= parts.port is None or parts.scheme != "s3"
    except ValueError:  # such as an invalid port
        parts, plain = SplitResult("", "", "", "", ""), False
    if not plain or (parts.scheme in {"http", "https", "s3"} and not parts.hostname):
        advice = "; write %20 for a space" if " " in url.strip() else ""
        raise QueryError(f"a source is a URL without query or credentials, such as {DEFAULT_SOURCE}{advice}")
    return parts


def canonical(url: str) -> str:
    """Return the URL of a source as stored: the same for https and s3 of Common Crawl."""
    root = f"{(Path(url).resolve().as_uri() if is_folder(url) else url).rstrip('/')}/"
    return DEFAULT_SOURCE if root == "s3://commoncrawl/" else root


def is_folder(url: str) -> bool:
    try:
        return bool(url) and Path(url).is_dir()  # an empty path would be the current folder
    except OSError:  # the name is too long
        return False


def source_roots(url: str) -> list[str]:
    if not is_folder(url):
        return [url]
    folder = Path(url).resolve()
    return [url, str(folder), folder.as_uri()]


def package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("commoncrawl-catalogue")
    except PackageNotFoundError:  # not installed
        return "0"


@contextmanager
def needing(extra: str, subject: str) -> Iterator[None]:
    """Name the extra with the library if one that is imported is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise QueryError(f"{subject} needs {error.name}; run: {install_command(extra)}") from error


def install_command(extra: str, environment: Path | None = None) -> str:
    """Return the command of pip, pipx or uv that adds an extra to this installation, or runs with it."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.request import url2pathname

    environment, package = environment or Path(sys.prefix), "commoncrawl-catalogue"
    origin = {}
    with suppress(PackageNotFoundError):
        origin = json.loads(distribution(package).read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    path = url2pathname(url.path) if url.scheme == "file" else package
    if environment.parent.name.startswith(_CACHES_OF_UV):
        return f"uvx --from {shlex.quote(f'{path}[{extra}]')} {package} ..."
    if (environment / "uv-receipt.toml").exists():
        # The same command without the present extras would remove them.
        receipt = tomllib.loads((environment / "uv-receipt.toml").read_text(encoding="utf-8"))
        requirements = receipt.get("tool", {}).get("requirements", [])
        present = [name for each in requirements if each.get("name") == package for name in each.get("extras", [])]
        extras = sorted({extra, *present})
        return shlex.join(["uv", "tool", "install", f"{package}[{','.join(extras)}]"])
    if (environment / "pipx_metadata.json").exists():
        if environment.parent.name != "venvs":  # the cache of: pipx run
            return f"pipx run --spec {shlex.quote(f'{path}[{extra}]')} {package} ..."
        # Older versions of `pipx inject` refuse the package of the environment.
        return shlex.join(["pipx", "runpip", environment.name, "install", f"{package}[{extra}]"])
    pip, uv = [sys.executable, "-m", "pip", "install"], ["uv", "pip", "install", "--python", sys.executable]
    folder = origin.get("dir_info")
    words = [*(["-e"] if folder and folder.get("editable") else []), f"{package if folder is None else path}[{extra}]"]
    return shlex.join([*(pip if find_spec("pip") else uv), *words])


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the same files as other hosts, and its rules."""

    name: str
    address: str
    rate: float | None = None
    """Requests per second; None for the default of the address."""
    quota: tuple[int, float] | None = None
    """Requests that are allowed in a window of seconds."""
    redirects: tuple[str, ...] = ()
    """Hosts to which redirects are followed; ``*.hf.co`` stands for all names that end with ``.hf.co``."""
    first_crawl: int = 0
    """Year of the first crawl that the host has."""

    def divided(self, rate: float | None, machines: int) -> "Host":
        """Return the host with the part of its limits that each of several machines may use."""
        quota = self.quota and (max(1, self.quota[0] // machines), self.quota[1])
        return replace(self, rate=rate and rate / machines, quota=quota)


_SECOND = "https://huggingface.co/buckets/commoncrawl/commoncrawl/resolve/"
HOSTS = (
    Host("commoncrawl", DEFAULT_SOURCE),
    Host("huggingface", _SECOND, rate=10.0, quota=(3000, 300.0), redirects=("*.hf.co",), first_crawl=2026),
)
"""Hosts of Common Crawl's files. The rules of the second are from its documentation; it was never tried."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a catalogue and its source."""

    source: str = DEFAULT_SOURCE
    """URL from which files are read (https, http or s3), a folder, ``demo``, or names or URLs of hosts, by commas."""
    contact: str | None = None
    """E-mail address or web page where the operators of the source can reach the user."""
    rate: float | None = None
    """Requests per second on average; None for the default of the host."""
    connections: int | None = None
    """Concurrent requests; None for the default of the host."""
    patience: float | None = None
    """Minimum seconds to wait after 503 or 429; None for the default of the host."""
    bandwidth: float = 10e6
    """Approximate bytes per second, by which plans weigh bytes against requests."""
    latency: float = 0.1
    """Approximate seconds until the first byte of a response."""
    cache_size: int = 1_000_000_000
    """Maximum bytes of pages and blocks that are cached on disk; 0 for no cache."""
    cache: Path = field(default_factory=lambda: user_cache_path("catalogue"))
    """Folder of cached pages and of the rate limits that processes share."""
    data: Path = field(default_factory=default_data)
    """Folder of store and metadata database."""
    hosts: tuple[Host, ...] = ()
    """Rules of hosts that ``source`` names. With them, the value of ``source`` is the address of the first host."""

    def __post_init__(self) -> None:
        address(self.source)  # messages and files contain it, so it must not contain a secret

    def absolute(self) -> "Settings":
        """Return the settings with paths that do not depend on the current folder."""
        source = str(Path(self.source).absolute()) if is_folder(self.source) else self.source
        return replace(self, source=source, cache=self.cache.absolute(), data=self.data.absolute())

    @property
    def is_anonymous(self) -> bool:
        """Whether requests go to Common Crawl's server without a contact."""
        return self.source == DEFAULT_SOURCE and not self.contact

    @property
    def list_source(self) -> str:
        """Return the URL of the host of the list of crawls."""
        return COLLINFO_SOURCE if self.source in {host.address for host in HOSTS} else self.source

    @property
    def user_agent(self) -> str:
        return f"commoncrawl-catalogue/{package_version()} ({self.contact or 'no contact set'})"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one Parquet file. They apply to all catalogues of a process, because its decoders share them."""

    max_footer: int = 64 << 20
    """Maximum bytes of a footer; those of Common Crawl have 10 to 100 kB. The worst took six times as much memory."""
    max_elements: int = 100_000
    """Maximum elements of a list in a footer or page index: row groups, columns, pages of a column chunk."""
    max_rows: int = 1 << 31
    """Maximum rows of a row group."""
    max_page: int = 1 << 30
    """Maximum bytes of a page after decompression."""

    def exceeded(self, name: str, found: str) -> str:
        setting = f"the setting {name} or CATALOGUE_{name.upper()} raises this limit"
        return f"{found}; at most {getattr(self, name):,} are accepted; {setting}"


@cache
def limits() -> Limits:
    """Return the limits of this process, as they were when settings were last loaded."""
    try:
        return Limits(**_of_kind(Limits, _configured()))
    except QueryError:  # load_settings raises it; what is stored can be read without the file
        return Limits()


_MAY_BE_ZERO = {"patience", "latency", "cache_size"}
_KNOWN = [setting.name for kind in (Settings, Limits) for setting in fields(kind)]
"""Names of settings; ``hosts`` is only in the file."""


def load_settings(otherwise: Mapping[str, object] = {}, /, **given: object) -> Settings:
    """Combine settings: ``given`` ones override all others, unless None; ``otherwise`` has defaults."""
    if limit := next((name for name in given if name in Limits.__dataclass_fields__), None):
        raise QueryError(
            f"{limit} is a limit of the process; set CATALOGUE_{limit.upper()}, or {limit} in {config_file()}"
        )
    limits.cache_clear()
    values = {**otherwise, **_configured()}
    values |= {name: value for name, value in given.items() if value is not None}
    for name in values:
        if name not in _KNOWN:
            raise QueryError(not_among(f"{config_file()}: unknown setting", name, _KNOWN))
    _of_kind(Limits, values)  # so that an invalid one is an error now
    limits()  # kept from now on
    known = _known_hosts(values.pop("hosts", {}))
    settings = Settings(**_of_kind(Settings, values))
    hosts = _named_hosts(settings.source, known) or (Host("", settings.source),)
    has_rules = hosts != (Host(hosts[0].name, hosts[0].address),)
    return replace(settings, source=hosts[0].address, hosts=hosts if has_rules else ())


def _known_hosts(tables: Any) -> dict[str, Host]:  # noqa: ANN401 - of a file
    known = {host.name: host for host in HOSTS}
    try:
        for name, table in tables.items():
            given: dict[str, Any] = {key: tuple(of) if isinstance(of, list) else of for key, of in table.items()}
            host = known[name] = replace(known.get(name, Host(name, "")), **given)
            count, seconds = host.quota or (1, 1)
            numbers = (1 if host.rate is None else host.rate, count, seconds, host.first_crawl + 1)
            usable = all(0 < each < math.inf for each in numbers) and all(map(_HOST_NAME.fullmatch, host.redirects))
            if not (usable and address(host.address).scheme):
                raise ValueError(name)  # noqa: TRY301 - reported below
    except (AttributeError, TypeError, ValueError) as error:
        raise QueryError(
            f"{config_file()}: invalid [hosts.…]; a host has an address, and optionally rate = 5, "
            'quota = [3000, 300], redirects = ["*.example.org"], first_crawl = 2026'
        ) from error
    return known


def _named_hosts(source: str, known: Mapping[str, Host]) -> tuple[Host, ...]:
    names = [name.strip() for name in source.split(",")]
    if is_folder(source) or not (names[0] in known or all("://" in name for name in names)):
        return ()
    by_address = {host.address.removesuffix("/"): host for host in known.values()}
    found: dict[Host, None] = {}
    for name in names:
        host = known.get(name) or by_address.get(name.removesuffix("/")) or Host(name, name)
        if "://" not in host.address:
            raise QueryError(not_among("unknown host of the source", name, known))
        found[host] = None
    return tuple(found)


def _of_kind(kind: type[Settings | Limits], values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: _converted(each.name, values[each.name]) for each in fields(kind) if each.name in values}


def _configured() -> dict[str, Any]:
    """Return the values of ``config.toml`` and of variables, which override them."""
    file = config_file()
    values: dict[str, Any] = {}
    try:
        with open_file(file) as opened:
            values = tomllib.loads(opened.read(_LARGEST_FILE).decode())
            if opened.read(1):
                raise QueryError(f"{file} cannot be read: it has more than {_LARGEST_FILE:,} bytes")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise QueryError(f"{file} cannot be read: {error}") from error
    for name in _KNOWN:
        if name != "hosts" and (text := os.environ.get(f"CATALOGUE_{name.upper()}")):
            values[name] = text
    return values


def _converted(name: str, value: object) -> Any:  # noqa: ANN401 - settings have different types
    kinds: dict[str, Any] = {
        **dict.fromkeys(["rate", "patience", "bandwidth", "latency"], float),
        **dict.fromkeys(["connections", "cache_size", *Limits.__dataclass_fields__], int),
        **dict.fromkeys(["cache", "data"], Path),
    }
    kind = kinds.get(name, str)
    if name == "source" and isinstance(value, list | tuple) and {*map(type, value)} == {str}:
        value = ",".join(value)
    try:
        # The types accept too much: True for 1, 2.5 for 2.
        converted = kind(value)
        usable = isinstance(value, str | kind) or (kind is float and isinstance(value, int))
        usable &= kind is not Path or value != ""  # that would be the current folder
        if kind in {int, float}:
            usable &= not isinstance(value, bool) and 0 <= converted < math.inf
            usable &= converted > 0 or name in _MAY_BE_ZERO
    except (TypeError, ValueError, OverflowError):
        usable = False
    if not usable or (name == "contact" and not str(value).isprintable()):
        words = {int: "a whole number", float: "a number", Path: "a path"}
        least = ", 0 or more" if name in _MAY_BE_ZERO else " over 0"
        use = words.get(kind, "a printable text") + (least if kind in {int, float} else "")
        raise QueryError(f"invalid value {value!r} of the setting {name}; use {use}")
    if name == "source" and f"{converted}/" == DEFAULT_SOURCE:
        return DEFAULT_SOURCE
    return converted.expanduser() if kind is Path and str(value).startswith("~/") else converted
