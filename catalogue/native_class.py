"""How mypyc compiles a class; without mypyc, ``mypyc_attr`` changes nothing and needs no package.

Instances of an acyclic class hold no reference that could lead back to themselves, so the garbage collector need not
visit them. Queries make tens of thousands, and visiting them took an eighth of their CPU time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414 - a name to import from here
else:

    def mypyc_attr(**_attributes: bool) -> Callable[[type], type]:
        """Return a decorator that returns the class."""
        return lambda cls: cls
