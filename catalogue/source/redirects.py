"""Files of a host that redirects to signed addresses on other hosts."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from threading import Lock
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from catalogue.errors import Blocked, FileChanged, Forbidden, NotFound, SourceError, Unreachable
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.checks import EXCERPT, Request, RequestedRange, Response, differ
from catalogue.source.http import HttpSource
from catalogue.source.observe import hide_credentials
from catalogue.source.rate_limit import Limiter
from catalogue.source.retry import PoliteSource

_REDIRECTS = {301, 302, 303, 307, 308}
_ADDRESSES = 4096
"""Files whose addresses are kept."""
_TRIES = 6
"""Requests for a file, its address, or both."""


class _Expired(SourceError):
    """A signed address is no longer valid."""


@dataclass(slots=True, repr=False)
class _Address:
    """The host of a file, and its path there with a signature, which nothing prints."""

    root: str
    target: str
    was_valid: bool = False


@dataclass(slots=True)
class _Place:
    """The address of a file, if it is known; one thread at a time requests it."""

    lock: Lock = field(default_factory=Lock)
    address: _Address | None = None


class RedirectingSource(HttpSource):
    """Requests a file by its address, or the address if it is not known; that response has no bytes."""

    def __init__(self, url: str, redirects: tuple[str, ...], *, user_agent: str, connections: int) -> None:
        hide_credentials()
        super().__init__(url, user_agent=user_agent, connections=connections)
        self._redirects, self._user_agent = redirects, user_agent
        self._lock = Lock()
        self._place = lru_cache(_ADDRESSES)(lambda _path: _Place())
        self._targets: dict[str, HttpSource] = {}

    def place(self, path: str) -> _Place:
        with self._lock:
            return self._place(path)

    def get(
        self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None, target: str | None = None
    ) -> Response:
        del target
        place = self.place(path)
        address = place.address
        if address is None:  # the ETag is that of another host
            response = super().get(path, requested, pin=pin and FileVersion(pin.size, None))
            if pin and differ(pin.etag, response.etag):
                raise FileChanged(f"{self.url}{path} has ETag {response.etag!r}; expected {pin.etag!r}")
            return response
        try:
            response = self._target_source(address.root).get(path, requested, pin=pin, target=address.target)
        except (Blocked, Forbidden, NotFound) as error:
            if not address.was_valid:
                raise
            if place.address is address:
                place.address = None
            raise _Expired(f"{self.url}{path}: the signed address has expired") from error
        address.was_valid = True
        return response

    def _target_source(self, root: str) -> HttpSource:
        with self._lock:
            if root not in self._targets:
                made = HttpSource(root, user_agent=self._user_agent, connections=self.connections)
                made.url = self.url  # for messages
                self._targets[root] = made
            return self._targets[root]

    def _receive(
        self, request: Request, status: int, headers: dict[str, str], read: Callable[[int], bytes]
    ) -> Response:
        path = request.where.removeprefix(self.url)
        url, location = f"{self.url}{quote(path)}", headers.get("location", "")
        to = _allowed(url, location, self._redirects) if status in _REDIRECTS else None
        if to is None:
            return super()._receive(request, status, headers, read)
        target = to.path.removeprefix("/") + (f"?{to.query}" if to.query else "")
        self.place(path).address = _Address(f"{to.scheme}://{to.netloc}/", target)
        read(EXCERPT)  # so that the connection is used again
        return replace(Request(request.where, None, None).response(b"", None, 0, headers), etag=None, redirected=True)

    def close(self) -> None:
        super().close()
        for each in [*self._targets.values()]:
            each.close()


class RedirectedSource(PoliteSource):
    """A polite source of a host that redirects, which limits addresses and files each by itself."""

    inner: RedirectingSource

    def __init__(self, inner: RedirectingSource, limiter: Limiter, addresses: Limiter, **options: Any) -> None:  # noqa: ANN401
        """Take the limits of files and of addresses, and the options of ``PoliteSource``."""
        super().__init__(inner, limiter, **options)
        self._addresses = PoliteSource(inner, addresses, **options)

    @property
    def requests(self) -> int:
        return super().requests + self._addresses.requests

    @property
    def bytes(self) -> int:
        return super().bytes + self._addresses.bytes

    @property
    def unavailable_until(self) -> float:
        return max(super().unavailable_until, self._addresses.unavailable_until)

    def seconds_to_wait(self) -> float:
        return max(super().seconds_to_wait(), self._addresses.seconds_to_wait())

    def _get(
        self, path: str, requested: RequestedRange, pin: FileVersion | None, attempts: int, until: float
    ) -> Response:
        place = self.inner.place(path)
        for _ in range(_TRIES):
            with nullcontext() if place.address else place.lock:
                if place.address is None:
                    response = self._addresses._get(path, requested, pin, attempts, until)  # noqa: SLF001 - of this class
                    if not response.redirected:
                        self._note_honoured(requested, response)
                        return response
            with suppress(_Expired):
                response = super()._get(path, requested, pin, attempts, until)
                if not response.redirected:  # another thread may have dropped the address before a repetition
                    return response
        raise Unreachable(f"{self.url}{path}: its signed addresses expire at once")


def _allowed(url: str, location: str, redirects: tuple[str, ...]) -> SplitResult | None:
    if not location.isascii() or not location.isprintable() or " " in location:
        return None
    try:
        base, to = urlsplit(url), urlsplit(urljoin(url, location))
        name, is_safe = to.hostname or "", base.scheme == to.scheme == "https" and to.port in {None, 443}
        if base.scheme == to.scheme == "http":
            is_safe = to.port != 0 and all(ip_address(each.hostname or "").is_loopback for each in (base, to))
    except ValueError:
        return None
    is_named = any(name == each or (each.startswith("*.") and name.endswith(each[1:])) for each in redirects)
    return to if is_safe and is_named and "@" not in to.netloc else None
