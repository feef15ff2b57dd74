"""Files over HTTP."""

import os
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from threading import Condition
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

from catalogue.errors import (
    CatalogueError,
    ConnectionRefused,
    NameNotResolved,
    QueryError,
    SourceUnavailable,
    Unreachable,
)
from catalogue.source.byte_ranges import FileVersion, range_header
from catalogue.source.checks import Request, RequestedRange, Response, is_strong
from catalogue.source.http_connection import Connection, Route

_MIN_SPEED = 100_000
"""Bytes per second; a slower body is an error."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables of requests and curl for certificates; OpenSSL itself reads SSL_CERT_FILE and SSL_CERT_DIR."""
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds after which a request fails."""

    connect: float = 10.0
    silence: float = 20.0
    """Without a byte received."""
    total: float = 60.0
    """For the complete request, plus time for the body by its length."""

    def of(self, request: Request) -> float:
        """Return the seconds for the complete request."""
        return self.total + request.max_length / _MIN_SPEED


class HttpSource:
    """Files below an http or https address."""

    def __init__(self, url: str, *, user_agent: str, connections: int, timeouts: Timeouts | None = None) -> None:
        """Prepare; the first request connects.

        Args:
            url: ends with a slash; without query or credentials.
            user_agent: the tool and a contact.
            connections: maximum number of open connections.
            timeouts: for every request.

        Raises:
            QueryError: if the environment sets unusable certificates or proxies, or the address has no valid host.
        """
        self.url = url
        self.connections = connections
        self._timeouts = timeouts or Timeouts()
        self._headers = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        parts = urlsplit(url)
        self._target = parts.path
        proxy = _proxy(parts)
        authorization = _authorization(proxy) if proxy else {}
        if proxy and parts.scheme == "http":
            self._target = url
            self._headers |= authorization
        self._proxied = proxy is not None
        self._pool = _Pool(url, _route(parts, proxy, authorization), connections, self._timeouts)
        finalize(self, self._pool.close)  # scripts may not close their sources

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        request = Request(f"{self.url}{path}", requested, pin)
        headers = self._headers.copy()
        if requested is not None:
            headers["Range"] = range_header(requested)
        if pin and pin.etag and is_strong(pin.etag):
            headers["If-Match"] = pin.etag
        target = self._target + quote(path, safe="/=+,~")
        try:
            with self._pool.connection() as connection:
                return connection.get(request, target, headers, self._timeouts.of(request))
        except ssl.SSLCertVerificationError as error:
            message = (
                f"{self.url} has an untrusted certificate ({error.verify_message}); "
                "to trust other authorities, set SSL_CERT_FILE"
            )
            raise SourceUnavailable(message) from error
        except ConnectionRefusedError as error:
            if self._proxied:
                raise no_answer(request.where, error) from error
            message = f"nothing listens at {self.url} (connection refused)"
            raise ConnectionRefused(message) from error
        except gaierror as error:
            raise name_not_resolved(self._pool.host) from error
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, CatalogueError):
                raise
            raise no_answer(request.where, error) from error

    def close(self) -> None:
        """Close the connections and cancel running requests."""
        self._pool.close()


class _Pool:
    """A limited number of connections, each used by one thread at a time."""

    def __init__(self, url: str, route: Route, connections: int, timeouts: Timeouts) -> None:
        self._url = url
        self._route = route
        self._timeouts = timeouts
        self._process = os.getpid()
        self._changed = Condition()
        self._closed = False
        self._free = connections
        self._idle: list[Connection] = []
        self._borrowed: set[Connection] = set()

    @property
    def host(self) -> str:
        """Return the name to resolve."""
        return (self._route.proxy or self._route.host)[0]

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection for one request; wait until one is free.

        Raises:
            SourceUnavailable: if the pool is closed, before or during the request, or belongs to another process.
        """
        if self._process != os.getpid():  # lock and sockets belong to the parent process
            message = f"{self._url} was opened by another process; open it again in this one"
            raise SourceUnavailable(message)
        connection = self._borrow()
        try:
            if connection and not connection.is_usable():
                connection.close()
                connection = None
            if connection is None:
                connection = self._connect()
            yield connection
        except Exception as error:
            if self._closed:
                message = f"{self._url} was closed during a request"
                raise SourceUnavailable(message) from error
            raise
        finally:
            self._give_back(connection)

    def _borrow(self) -> Connection | None:
        """Wait until a connection may be used; return an idle one, or None to open one."""
        with self._changed:
            while not self._free and not self._closed:
                self._changed.wait()
            if self._closed:
                message = f"{self._url} was closed"
                raise SourceUnavailable(message)
            self._free -= 1
            connection = self._idle.pop() if self._idle else None
            if connection:
                self._borrowed.add(connection)
            return connection

    def _connect(self) -> Connection:
        connection = Connection(
            self._route, connect_seconds=self._timeouts.connect, silence_seconds=self._timeouts.silence
        )
        with self._changed:
            self._borrowed.add(connection)
            if self._closed:
                connection.abort()
        return connection

    def _give_back(self, connection: Connection | None) -> None:
        with self._changed:
            self._free += 1
            if connection:
                self._borrowed.discard(connection)
                if connection.reusable and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.close()
            self._changed.notify()

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._changed:
            self._closed = True
            for connection in self._borrowed:
                connection.abort()
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._changed.notify_all()


def name_not_resolved(host: str) -> NameNotResolved:
    return NameNotResolved(
        f"the name {host} cannot be resolved; check whether this machine is online, the name is right, "
        "and a proxy is needed (HTTPS_PROXY)"
    )


def no_answer(where: str, error: BaseException) -> Unreachable:
    """Return the error for a failed request. It names only the type of the cause: messages may contain headers."""
    return Unreachable(f"{where}: no usable response ({type(error).__name__})")


def _route(parts: SplitResult, proxy: SplitResult | None, authorization: dict[str, str]) -> Route:
    host = _address(parts)
    if proxy is None:
        return Route(host, _trusted() if parts.scheme == "https" else None)
    proxy_tls = _trusted() if proxy.scheme == "https" else None
    if parts.scheme == "http":
        return Route(host, proxy=_address(proxy), proxy_tls=proxy_tls)
    if proxy_tls:
        message = "the environment sets an https proxy for https addresses; only http proxies are supported for them"
        raise QueryError(message)
    return Route(host, _trusted(), _address(proxy), tunnel_headers=authorization)


def _address(parts: SplitResult) -> tuple[str, int]:
    """Return host and port.

    Raises:
        QueryError: if the host is not valid.
    """
    try:
        name = (parts.hostname or "").encode("idna" if not (parts.hostname or "").isascii() else "ascii").decode()
        return name, parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        message = f"{parts.scheme}://{parts.hostname}/ has no valid host; use a name, or an address such as 127.0.0.1"
        raise QueryError(message) from error


def _trusted() -> ssl.SSLContext:
    name = next((name for name in _BUNDLES if os.environ.get(name)), None)
    bundle = os.environ[name] if name else None
    try:
        if bundle and Path(bundle).is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        message = f"{name} is set to {bundle}, which contains no readable certificates ({error.strerror or error})"
        raise QueryError(message) from error


def _proxy(parts: SplitResult) -> SplitResult | None:
    """Return the environment's proxy for an address."""
    name = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not name:
        return None
    proxy = urlsplit(name if "://" in name else f"http://{name}")
    if proxy.scheme not in _PORTS:
        message = (
            f"the environment sets a {proxy.scheme} proxy for {parts.scheme}://{parts.netloc}/; "
            "only http and https proxies are supported"
        )
        raise QueryError(message)
    return proxy


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    secret = b64encode(f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {secret}"}
