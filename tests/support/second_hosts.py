"""A host of the same files as another one, as it is documented: it redirects to signed addresses on a third host."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from catalogue.settings import Host
from tests.support.canaries import MARK
from tests.support.faults import Exchange, Fault, FaultServer, Kind, Request, Script

SIGNED = "127.0.0.3"
"""The host of the addresses."""


@dataclass
class SecondHost:
    redirecting: FaultServer
    signed: FaultServer
    rules: Host
    expired: set[str] = field(default_factory=set)
    """Paths whose present addresses are no longer valid; the next redirect is to a valid one."""

    @property
    def requests(self) -> int:
        return self.redirecting.requests + self.signed.requests

    def log(self) -> list[Exchange]:
        return self.redirecting.settle() + self.signed.settle()


@contextmanager
def second_host(
    files: Path | Mapping[str, bytes],
    *,
    has: Callable[[str], bool] = lambda _: True,
    faults: Script = lambda _: None,
    redirect_faults: Script = lambda _: None,
    target: str = "{root}{{path}}?X-Signature=" + MARK,
    **rules: object,
) -> Iterator[SecondHost]:
    """Serve files at two addresses; ``target`` is the address of a file, ``rules`` are those of ``Host``."""

    def is_there(path: str) -> bool:
        return has(path) and (path in files if isinstance(files, Mapping) else (files / path).is_file())

    def redirect(request: Request) -> Fault | None:
        if fault := redirect_faults(request):
            return fault
        host.expired.discard(request.path)
        place = target.format(root=signed.url)
        return Fault(Kind.REDIRECT_AWAY, (1, 2)[request.number % 2], target=place) if is_there(request.path) else None

    def serve(request: Request) -> Fault | None:
        return Fault(Kind.DENIED) if request.path in host.expired else faults(request)

    with (
        FaultServer(files, script=serve, host=SIGNED) as signed,
        FaultServer({}, script=redirect, host="127.0.0.2") as redirecting,
    ):
        signed.tag = "xet-"
        options = {"redirects": (SIGNED,), **rules}
        host = SecondHost(redirecting, signed, Host("second", redirecting.url, **options))  # type: ignore[arg-type]
        yield host
