"""Files of a host that redirects to signed addresses on other hosts."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from threading import Lock
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from catalogue.errors import Blocked, FileChanged, Forbidden, NotFound, Redirected, SourceError, Unreachable
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.checks import Request, RequestedRange, Response, differ
from catalogue.source.http import HttpSource
from catalogue.source.observe import hide_credentials
from catalogue.source.rate_limit import Limiter
from catalogue.source.retry import PoliteSource

_REDIRECTS = {301, 302, 303, 307, 308}
_ADDRESSES = 4096
"""Files whose addresses are kept."""
_TARGETS = 16
"""Hosts to which a host may redirect."""
_TRIES = 3
"""Addresses that are used for one request."""


class _Expired(SourceError):
    """A signed address is no longer valid."""


@dataclass(slots=True, repr=False)
class _Address:
    """An address with a signature, which nothing prints."""

    root: str
    """The root of its host."""
    target: str
    """Path and query."""
    answered: bool = False
    """Whether it was valid once."""


@dataclass(slots=True)
class _Place:
    """The address of a file; None if it is not known."""

    lock: Lock = field(default_factory=Lock)
    """One thread requests the address, and the others wait for it."""
    address: _Address | None = None


class _Places:
    """The addresses of the files that were requested last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_path: OrderedDict[str, _Place] = OrderedDict()

    def of(self, path: str) -> _Place:
        with self._lock:
            found = self._by_path.setdefault(path, _Place())
            self._by_path.move_to_end(path)
            if len(self._by_path) > _ADDRESSES:
                self._by_path.popitem(last=False)
            return found


class ResolvingSource(HttpSource):
    """Files whose addresses are kept if the host redirects to them; the response has no bytes then."""

    def __init__(self, url: str, redirects: tuple[str, ...], *, user_agent: str, connections: int) -> None:
        hide_credentials()
        super().__init__(url, user_agent=user_agent, connections=connections)
        self.places = _Places()
        self._redirects = redirects

    def _receive(
        self, request: Request, status: int, headers: dict[str, str], read: Callable[[int], bytes]
    ) -> Response:
        to = _allowed(self.url, headers.get("location", ""), self._redirects) if status in _REDIRECTS else None
        if to is None:
            return super()._receive(request, status, headers, read)
        target = to.path.removeprefix("/") + (f"?{to.query}" if to.query else "")
        place = self.places.of(request.where.removeprefix(self.url))
        place.address = _Address(f"{to.scheme}://{to.netloc}/", target)
        return replace(Request(request.where, None, None).response(b"", None, 0, headers), redirected=True)


class SignedSource(HttpSource):
    """The same files by their addresses on one host; messages have the first address."""

    def __init__(self, root: str, resolving: ResolvingSource, *, user_agent: str, connections: int) -> None:
        super().__init__(root, user_agent=user_agent, connections=connections)
        self.url = resolving.url
        self._places = resolving.places

    def _send(self, request: Request, target: str, headers: dict[str, str]) -> Response:
        del target
        address = self._places.of(request.where.removeprefix(self.url)).address
        if address is None:  # another thread has found that it has expired
            raise _Expired(f"{request.where}: the signed address has expired")
        try:
            response = super()._send(request, self._target + address.target, headers)
        except (Blocked, Forbidden, NotFound) as error:
            if address.answered:
                raise _Expired(f"{request.where}: the signed address has expired") from error
            raise
        address.answered = True
        return response


class RedirectedSource(PoliteSource):
    """A polite source of a host that redirects, and of the hosts to which it does."""

    inner: ResolvingSource

    def __init__(
        self,
        inner: ResolvingSource,
        limiter: Limiter,
        open_target: Callable[[str], PoliteSource],
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Take the options of ``PoliteSource``; ``open_target`` opens the source of another host by its root."""
        super().__init__(inner, limiter, **options)
        self._open_target = open_target
        self._targets: dict[str, PoliteSource] = {}

    @property
    def requests(self) -> int:
        return self._requests + sum(each.requests for each in [*self._targets.values()])

    @property
    def bytes(self) -> int:
        return self._bytes + sum(each.bytes for each in [*self._targets.values()])

    def seconds_to_wait(self, path: str) -> float:
        address = self.inner.places.of(path).address
        target = self._targets.get(address.root) if address else None
        return target.seconds_to_wait(path) if target else super().seconds_to_wait(path)

    def _get(
        self, path: str, requested: RequestedRange, pin: FileVersion | None, attempts: int, until: float
    ) -> Response:
        place = self.inner.places.of(path)
        for _ in range(_TRIES):
            with place.lock:
                address = place.address
                if address is None:
                    # Its ETag is that of the other host.
                    size = FileVersion(pin.size, None) if pin else None
                    response = super()._get(path, requested, size, attempts, until)
                    address = place.address
            if address is None:  # answered without a redirect
                if pin and pin.origin in {None, self.url} and differ(pin.etag, response.etag):
                    raise FileChanged(f"{self.url}{path} has ETag {response.etag!r}; expected {pin.etag!r}")
                return response
            try:
                return self._target(address.root)._get(path, requested, pin, attempts, until)  # noqa: SLF001 - of its class
            except _Expired:
                with place.lock:
                    if place.address is address:
                        place.address = None
        raise Unreachable(f"{self.url}{path}: each of {_TRIES} signed addresses has expired at once")

    def _target(self, root: str) -> PoliteSource:
        with self._lock:
            if root not in self._targets:
                if len(self._targets) == _TARGETS:
                    raise Redirected(f"{self.url} redirects to more than {_TARGETS} hosts")
                self._targets[root] = self._open_target(root)
            return self._targets[root]

    def close(self) -> None:
        super().close()
        for each in [*self._targets.values()]:
            each.close()


def _allowed(url: str, location: str, redirects: tuple[str, ...]) -> SplitResult | None:
    """Return the target of a redirect if the rules of the host allow it."""
    if not location.isascii() or not location.isprintable() or " " in location:
        return None
    try:
        base, to = urlsplit(url), urlsplit(urljoin(url, location))
        name, port = to.hostname or "", to.port
    except ValueError:
        return None
    is_named = any(name == each or (each.startswith("*.") and name.endswith(each[1:])) for each in redirects)
    is_https = base.scheme == to.scheme == "https" and port in {None, 443}
    is_local = base.scheme == to.scheme == "http" and _is_loopback(base.hostname) and _is_loopback(name)
    return to if is_named and "@" not in to.netloc and (is_https or is_local) else None


def _is_loopback(name: str | None) -> bool:
    try:
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False
