"""Files over HTTP, by the connections of urllib3."""

import os
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from threading import Event, Lock, Semaphore, Thread, get_ident
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

from urllib3 import HTTPConnectionPool, PoolManager, ProxyManager, Retry, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from catalogue.errors import (
    CatalogueError,
    ConnectionRefused,
    NameNotResolved,
    ProxyRefused,
    QueryError,
    SourceError,
    SourceUnavailable,
    Unreachable,
    WithoutTls,
)
from catalogue.source.byte_ranges import FileVersion, range_header
from catalogue.source.checks import Request, RequestedRange, Response, is_strong
from catalogue.source.response_head import HeadResponse

_MIN_SPEED = 100_000
"""Bytes per second; a slower body is an error."""
_FIRST_ADDRESS_SECONDS = 2.0
"""Connect timeout for each address of a host except the last: IPv6 may not be reachable."""
_ONCE = Retry(total=False)
_TUNNEL = re.compile("Tunnel connection failed: ([0-9]{3})")
"""The message of ``http.client``, which has no class for it."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables of requests and curl; OpenSSL itself reads SSL_CERT_FILE and SSL_CERT_DIR."""
_PORTS = {"http": 80, "https": 443}


_UNQUOTED = "/=,~:@!$&'()*;"
"""Characters that a path may have unescaped (RFC 3986, section 3.3), and some servers do not decode; S3 decodes + to a
space.
"""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds after which a request fails."""

    connect: float = 10.0
    silence: float = 20.0
    """Pause before the next byte."""
    total: float = 60.0
    """Time of a request, except that of the body by its length."""

    def of(self, request: Request) -> float:
        return self.total + request.max_length / _MIN_SPEED


class HttpSource:
    """Files below an http or https address."""

    def __init__(self, url: str, *, user_agent: str, connections: int, timeouts: Timeouts | None = None) -> None:
        """Prepare; the first request connects.

        ``url`` ends with a slash and has no query or credentials. ``user_agent`` names the tool and a contact.

        Raises:
            QueryError: if certificates, proxies or the host are not usable.
        """
        self.url = url
        self.connections = connections
        self._timeouts = timeouts or Timeouts()
        parts = urlsplit(url)
        proxy = _proxy(parts)
        self._proxy = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}" if proxy else ""
        self._headers = {"Host": _host_header(parts), "User-Agent": user_agent.encode().decode("latin-1")}
        self._headers |= {"Accept": "*/*", "Accept-Encoding": "identity"}
        self._host = _address(proxy or parts)[0]
        self._target = url if proxy and parts.scheme == "http" else parts.path
        self._running = _RunningRequests(url, connections, check_seconds=min(1.0, self._timeouts.total / 10))
        self._pool = _pool(parts, proxy, connections, self._timeouts)
        of_scheme = _Connection if parts.scheme == "http" else _TlsConnection
        self._pool.ConnectionCls = partial(of_scheme, self._running)  # type: ignore[assignment] # called for each
        finalize(self, self._running.close)  # scripts may not close their sources

    def get(
        self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None, target: str | None = None
    ) -> Response:
        """See ``Source.get``; ``target`` is requested instead of the path."""
        request = Request(f"{self.url}{path}", requested, pin)
        headers = self._headers.copy()
        if requested is not None:
            headers["Range"] = range_header(requested)
        if pin and pin.etag and is_strong(pin.etag):
            headers["If-Match"] = pin.etag
        try:
            with self._running.request(self._timeouts.of(request)):
                target = quote(path, safe=_UNQUOTED) if target is None else target
                return self._send(request, self._target + target, headers)
        except CatalogueError:
            raise
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            cause: BaseException = error
            while isinstance(cause, HTTPError) and (inner := cause.__cause__ or cause.__context__):
                cause = inner  # which urllib3 wrapped
            raise self._failure(request, cause) from error

    def _receive(
        self, request: Request, status: int, headers: dict[str, str], read: Callable[[int], bytes]
    ) -> Response:
        return request.read(status, headers, read)

    def _send(self, request: Request, target: str, headers: dict[str, str]) -> Response:
        opened = self._pool.urlopen(
            "GET",
            target,
            headers=headers,
            retries=_ONCE,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
        )
        response = cast("HeadResponse", opened)

        def read(size: int) -> bytes:
            body = response.read(size)
            if len(body) < size and response.length:
                raise ConnectionError("the connection was closed before the end of the response")
            return body

        try:
            return self._receive(request, response.status, response.fields, read)
        finally:
            response.release_conn()

    def _failure(self, request: Request, cause: BaseException) -> SourceError:
        proxy = f"the proxy {self._proxy} that {urlsplit(self.url).scheme}_proxy names"
        if self._proxy and isinstance(cause, ConnectionRefusedError):
            return ProxyRefused(f"{proxy} refuses connections")
        if self._proxy and (tunnel := _TUNNEL.match(str(cause))):
            message = f"{proxy} answers {tunnel[1]} instead of connecting to {self.url}"
            if tunnel[1] >= "500":
                return Unreachable(message)
            advice = "; put a user and password into its address" if tunnel[1] == "407" else ""
            return SourceUnavailable(message + advice)
        return no_response(request, cause, url=self.url, host=self._host, bundle=_bundle() or "SSL_CERT_FILE")

    def close(self) -> None:
        """Close the connections and cancel running requests."""
        self._running.close()
        self._pool.close()


@dataclass(slots=True)
class _RunningRequest:
    deadline: float
    connected: socket.socket | None = None
    is_late: bool = False

    def end(self) -> None:
        if self.connected:
            with suppress(OSError):
                self.connected.shutdown(socket.SHUT_RDWR)


class _RunningRequests:
    """The running requests of a source, of a limited number; a thread shuts down the sockets of late ones.

    A server avoids the timeout of a socket by a byte a second.
    """

    def __init__(self, url: str, most: int, *, check_seconds: float) -> None:
        self._url = url
        self._check_seconds = check_seconds
        self._process = os.getpid()
        self._lock = Lock()
        self._free = Semaphore(most)
        self._running: dict[int, _RunningRequest] = {}
        self._watch: Thread | None = None
        self._closed = Event()

    @contextmanager
    def request(self, seconds: float) -> Iterator[None]:
        """Run one request in a block; wait until it may start.

        Raises:
            SourceUnavailable: if the source is closed, or belongs to another process.
            TimeoutError: if the block takes longer than ``seconds``.
        """
        if self._process != os.getpid():  # lock and sockets belong to the parent process
            raise SourceUnavailable(f"{self._url} was opened by another process; open it again in this one")
        with self._free:
            run = self._start(seconds)
            try:
                yield
            except Exception as error:
                if self._closed.is_set():
                    raise SourceUnavailable(f"{self._url} was closed during a request") from error
                if run.is_late:
                    raise TimeoutError("the response took too long") from error
                raise
            finally:
                with self._lock:
                    del self._running[get_ident()]

    def _start(self, seconds: float) -> _RunningRequest:
        with self._lock:
            if self._closed.is_set():
                raise SourceUnavailable(f"{self._url} was closed")
            if self._watch is None:
                self._watch = Thread(target=self._end_late, name=f"deadlines of {self._url}", daemon=True)
                self._watch.start()
            run = self._running[get_ident()] = _RunningRequest(time.monotonic() + seconds)
            return run

    def use(self, connected: socket.socket) -> None:
        with self._lock:
            run = self._running[get_ident()]
            run.connected = getattr(connected, "socket", connected)  # urllib3's object for TLS within TLS has it
            if self._closed.is_set():
                run.end()

    def _end_late(self) -> None:
        while not self._closed.wait(self._check_seconds):
            with self._lock:
                now = time.monotonic()
                for run in self._running.values():
                    if run.deadline <= now:
                        run.is_late = True
                        run.end()

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed.set()
            for run in self._running.values():
                run.end()


class _Connection(HTTPConnection):
    """A connection whose running request another thread can end."""

    def __init__(self, running: _RunningRequests, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self._running = running

    def _new_conn(self) -> socket.socket:
        infos = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        *others, last = [(str(info[4][0]), int(info[4][1])) for info in infos]
        seconds = float(self.timeout or 0)
        for address in others:
            try:
                return _connect(address, min(seconds, _FIRST_ADDRESS_SECONDS))
            except OSError:
                continue
        return _connect(last, seconds)

    def connect(self) -> None:
        super().connect()
        self._running.use(self.sock)

    def request(self, method: str, url: str, *, headers: Mapping[str, str], **_: object) -> None:  # type: ignore[override]
        """Send the head of a request, which ``http.client`` would encode and check line by line."""
        if self.sock:
            self._running.use(self.sock)
            self.sock.settimeout(self.timeout)
        head = "".join([f"{method} {url} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in headers.items())])
        if not head.count("\n") == head.count("\r") == 1 + len(headers):
            raise ValueError("a header has a line break")
        self.send(f"{head}\r\n".encode("latin-1"))

    def getresponse(self) -> HeadResponse:  # type: ignore[override]
        self.sock.settimeout(self.timeout)
        response = HeadResponse(self.sock)
        try:
            response.begin()
        except BaseException:
            response.close()
            raise
        if response.will_close:
            self.close()  # the response keeps the socket open
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    pass


def _connect(address: tuple[str, int], seconds: float) -> socket.socket:
    connected = socket.create_connection(address, seconds)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _pool(parts: SplitResult, proxy: SplitResult | None, connections: int, timeouts: Timeouts) -> HTTPConnectionPool:
    options: dict[str, Any] = {
        "maxsize": connections,
        "timeout": Timeout(connect=timeouts.connect, read=timeouts.silence),
    }
    if parts.scheme == "https":
        options["ssl_context"] = _trusted()
    host, port = _address(parts)
    if proxy is None:
        return PoolManager(**options).connection_from_host(host, port, parts.scheme)
    if proxy.scheme == "https":
        options["proxy_ssl_context"] = _trusted()
    name, proxy_port = _address(proxy)
    proxy_url = f"{proxy.scheme}://{f'[{name}]' if ':' in name else name}:{proxy_port}/"
    headers = {}
    if proxy.username is not None:
        secret = b64encode(f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()).decode()
        headers = {"Proxy-Authorization": f"Basic {secret}"}
    manager = ProxyManager(proxy_url, proxy_headers=headers, **options)
    return manager.connection_from_host(host, port, parts.scheme)


def no_response(request: Request, cause: BaseException, *, url: str, host: str, bundle: str) -> SourceError:
    """Return the error of a request without a response; ``bundle`` is the variable that names trusted certificates.

    Of other causes it has the type alone: their messages may contain headers.
    """
    match cause:
        case ssl.SSLCertVerificationError(verify_message=reason):
            message = f"{url} has an untrusted certificate ({reason}); to trust other authorities, set {bundle}"
            return SourceUnavailable(message)
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return WithoutTls(f"{url} is answered without TLS; does its address start with http://?")
        case ConnectionRefusedError():
            return ConnectionRefused(f"nothing listens at {url} (connection refused)")
        case socket.gaierror():
            return NameNotResolved(
                f"the name {host} cannot be resolved; check whether this machine is online, the name is right, "
                "and a proxy is needed (HTTPS_PROXY)"
            )
    return Unreachable(f"{request.where}: no usable response ({type(cause).__name__})")


def _address(parts: SplitResult) -> tuple[str, int]:
    try:
        return (parts.hostname or "").encode("idna").decode(), parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise QueryError(
            f"{parts.scheme}://{parts.hostname}/ has no valid host; use a name, or an address such as 127.0.0.1"
        ) from error


def _host_header(parts: SplitResult) -> str:
    name, port = _address(parts)
    host = f"[{name}]" if ":" in name else name
    return host if port == _PORTS[parts.scheme] else f"{host}:{port}"


def _bundle() -> str | None:
    """Return the variable that replaces those of OpenSSL."""
    return next((name for name in _BUNDLES if os.environ.get(name)), None)


def _trusted() -> ssl.SSLContext:
    name = _bundle()
    bundle = os.environ[name] if name else None
    try:
        if bundle and Path(bundle).is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        reason = error.strerror or error
        if error.filename:
            raise QueryError(f"SSLKEYLOGFILE names {error.filename}, which cannot be written ({reason})") from error
        raise QueryError(f"{name} is set to {bundle}, which contains no readable certificates ({reason})") from error


def _proxy(parts: SplitResult) -> SplitResult | None:
    name = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not name:
        return None
    try:
        proxy = urlsplit(name if "://" in name else f"http://{name}")
        is_valid = not re.search(r"\s", proxy.hostname or " ") and proxy.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise QueryError(f"{parts.scheme}_proxy has no valid host and port; use one such as http://127.0.0.1:8080")
    if proxy.scheme not in _PORTS:
        raise QueryError(
            f"the environment sets a {proxy.scheme} proxy for {parts.scheme}://{parts.netloc}/; "
            "only http and https proxies are supported"
        )
    return proxy
