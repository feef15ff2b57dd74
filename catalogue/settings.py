"""What a user can set: options, else the environment, else ``config.toml``, else what suits Common Crawl."""

import json
import math
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import url2pathname

from platformdirs import user_cache_path, user_config_path, user_data_path

from catalogue.errors import QueryError

DEFAULT_SOURCE = "https://data.commoncrawl.org/"
COLLINFO_SOURCE = "https://index.commoncrawl.org/"
"""Where the list of crawls is for the default source; any other source has its own at its root."""


STORE_NAME = "footers.sqlite"


def config_file() -> Path:
    """Return the path of the user's ``config.toml``, which need not exist."""
    return user_config_path("catalogue") / "config.toml"


def default_data() -> Path:
    """Return the folder ``data`` here if it has a store, of the index or of another table; else the user's own."""
    here = Path("data")
    has_store = (here / STORE_NAME).is_file() or any(here.glob(f"*/{STORE_NAME}"))
    return here if has_store else user_data_path("catalogue")


def address(url: str) -> SplitResult:
    """The parts of an address that may be shown and kept; no scheme for a folder, or what else it may be.

    Raises:
        QueryError: if a query or credentials are in it, or no host; it is not repeated, for it may hold a password.
    """
    if is_folder(url):
        return SplitResult("", "", url, "", "")
    is_address = "://" in url
    try:
        parts = urlsplit(url)
        plain = set(url).isdisjoint("?#@ " if is_address else "?#@") and (url.isprintable() or not is_address)
        plain &= parts.port is None or parts.scheme != "s3"
    except ValueError:  # such as a port that is no number
        parts, plain = SplitResult("", "", "", "", ""), False
    if not plain or (parts.scheme in {"http", "https", "s3"} and not parts.hostname):
        message = f"a source has an address without query or credentials, such as {DEFAULT_SOURCE}"
        raise QueryError(message)
    return parts


def canonical(url: str) -> str:
    """Return a source as stores have it, and one name for those that have the same files."""
    root = f"{(Path(url).resolve().as_uri() if is_folder(url) else url).rstrip('/')}/"
    return DEFAULT_SOURCE if root == "s3://commoncrawl/" else root


def is_folder(url: str) -> bool:
    """Whether it is a folder that is there."""
    try:
        return bool(url) and Path(url).is_dir()  # nothing would be the current one
    except OSError:  # too long for a name
        return False


def package_version() -> str:
    """This package's version."""
    try:
        return version("commoncrawl-catalogue")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0"


def install_command(extra: str, environment: Path | None = None) -> str:
    """Return the command that adds an extra to this installation: of a checkout or not, by pip, pipx or uv.

    Args:
        extra: one of those in ``pyproject.toml``.
        environment: Python's folder; that of the running interpreter unless given.
    """
    package, editable, requirements = "commoncrawl-catalogue", [], []
    with suppress(PackageNotFoundError):
        installed = distribution(package)
        requirements = [each for each in installed.requires or () if re.search(rf"extra == ['\"]{extra}['\"]", each)]
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        if "dir_info" in origin:
            package = url2pathname(urlsplit(origin["url"]).path)
            editable = ["-e"] if origin["dir_info"].get("editable") else []
    if ((environment or Path(sys.prefix)) / "pipx_metadata.json").exists():
        needed = [each.partition(";")[0].strip() for each in requirements]
        return shlex.join(["pipx", "inject", "commoncrawl-catalogue", *needed])
    pip, uv = [sys.executable, "-m", "pip", "install"], ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*(pip if find_spec("pip") else uv), *editable, f"{package}[{extra}]"])


@dataclass(frozen=True, slots=True)
class Settings:
    """How to talk to a source."""

    source: str = DEFAULT_SOURCE
    """Where files are read from: an https, http or s3 address, or a folder."""
    contact: str | None = None
    """An address, of e-mail or a page, by which the source's keepers can reach the user."""
    rate: float | None = None
    """Requests a second in the long run; None for the host's default."""
    connections: int | None = None
    """Requests under way at once; None for the host's default."""
    patience: float | None = None
    """Seconds to wait at least when a source asks to slow down; None for the host's default."""
    bandwidth: float = 10e6
    """Bytes a second, about; whether a plan saves bytes or requests depends on it."""
    latency: float = 0.1
    """Seconds until an answer's first byte, about; likewise."""
    cache_size: int = 1_000_000_000
    """Bytes of pages that are kept on disk at most, so that neighbours' questions cost nothing; 0 for none."""
    cache: Path = field(default_factory=lambda: user_cache_path("catalogue"))
    """Where processes share what they know of a host, and pages that were fetched."""
    data: Path = field(default_factory=default_data)
    """Folder of the store and the catalogue."""

    def __post_init__(self) -> None:
        """See that what is shown and written down with the source is no secret.

        Raises:
            QueryError: if it has a query or credentials in it.
        """
        address(self.source)

    @property
    def asks_strangers(self) -> bool:
        """Whether the source is Common Crawl's own."""
        return self.source == DEFAULT_SOURCE

    @property
    def user_agent(self) -> str:
        """How requests introduce themselves."""
        return f"commoncrawl-catalogue/{package_version()} ({self.contact or 'no contact set'})"


def load_settings(otherwise: Mapping[str, object] = {}, /, **given: object) -> Settings:
    """Settings from all places; those given here, unless None, win.

    Args:
        otherwise: those that are used where nothing is set.
        given: those that win.

    Raises:
        QueryError: if one cannot be used.
    """
    file = config_file()
    values: dict[str, Any] = {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        message = f"{file} cannot be read: {error}"
        raise QueryError(message) from error
    known = [setting.name for setting in fields(Settings)]
    for name in known:
        if text := os.environ.get(f"CATALOGUE_{name.upper()}"):
            values[name] = text
    values = {**otherwise, **values}
    values |= {name: value for name, value in given.items() if value is not None}
    for name in values:
        if name not in known:
            message = f"{file}: there is no setting {name!r}; there are {', '.join(known)}"
            raise QueryError(message)
    return Settings(**{name: _converted(name, value) for name, value in values.items()})


def _converted(name: str, value: object) -> Any:  # noqa: ANN401 - each setting has a type of its own
    kinds: dict[str, Any] = {
        **dict.fromkeys(["rate", "patience", "bandwidth", "latency"], float),
        **dict.fromkeys(["connections", "cache_size"], int),
        **dict.fromkeys(["cache", "data"], Path),
    }
    kind = kinds.get(name, str)
    try:
        # The types take more than is meant: True for 1, 2.5 for 2.
        converted = kind(value)
        usable = isinstance(value, str | kind) or (kind is float and isinstance(value, int))
        if kind in {int, float}:
            usable &= not isinstance(value, bool) and 0 <= converted < math.inf
            usable &= converted > 0 or name in {"patience", "latency", "cache_size"}
    except (TypeError, ValueError, OverflowError):
        usable = False
    if not usable or (name == "contact" and not str(value).isprintable()):
        message = f"{value!r} cannot be the setting {name}"
        raise QueryError(message)
    if name == "source" and f"{converted}/" == DEFAULT_SOURCE:
        return DEFAULT_SOURCE
    return converted.expanduser() if kind is Path and str(value).startswith("~/") else converted
