"""A Parquet metadata catalogue and columnar query tool for Common Crawl.

::

    import catalogue

    cat = catalogue.open()
    cat.harvest("CC-MAIN-2022-05")
    found = cat.captures("*.example.com", crawls="CC-MAIN-2022-05")
    found.plan            # nothing is read so far
    found.to_pandas()
    catalogue.get("https://example.com/").text

The glossary of the documentation explains the words.
"""

from importlib import import_module
from os.path import exists
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue, get, open  # noqa: A004 - catalogue.open, as gzip.open
    from catalogue.errors import CatalogueError, IncompleteAnswer, QueryError, SourceError
    from catalogue.plan.plan import ReadPlan
    from catalogue.surt import url_surtkey
    from catalogue.surt.pattern import Match

    __version__: str

if exists(f"{__path__[0]}/_importlib_metadata"):  # noqa: PTH110 - takes two microseconds, and no import
    import_module("catalogue.same_name").refuse()

_HOMES = {
    "Captures": "captures",
    "Catalogue": "catalogue",
    "CatalogueError": "errors",
    "IncompleteAnswer": "errors",
    "Match": "surt.pattern",
    "QueryError": "errors",
    "ReadPlan": "plan.plan",
    "SourceError": "errors",
    "get": "catalogue",
    "open": "catalogue",
    "url_surtkey": "surt",
}
_MODULES = ("errors", "settings")  # type checkers accept them without an import of their own

__all__ = [
    "Captures",
    "Catalogue",
    "CatalogueError",
    "IncompleteAnswer",
    "Match",
    "QueryError",
    "ReadPlan",
    "SourceError",
    "get",
    "open",
    "url_surtkey",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import a public name when it is first used."""
    if name == "__version__":
        return import_module("catalogue.settings").package_version()
    if name in _MODULES:
        return import_module(f"catalogue.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'catalogue' has no attribute {name!r}")
    return getattr(import_module(f"catalogue.{_HOMES[name]}"), name)


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 - an InteractiveShell of IPython
    """Add the magic ``%%catalogue``, for ``%load_ext catalogue``."""
    import_module("catalogue.sql_magic").load(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_MODULES]
