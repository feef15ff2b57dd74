"""Files over HTTP, by aiohttp."""

import errno
import os
import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

import aiohttp
from yarl import URL

from catalogue.errors import (
    CatalogueError,
    ConnectionRefused,
    NameNotResolved,
    QueryError,
    SourceUnavailable,
    Unreachable,
)
from catalogue.source.background_loop import Background
from catalogue.source.byte_ranges import FileVersion, range_header
from catalogue.source.checks import Exchange, Request, RequestedRange, Response, is_strong
from catalogue.source.connection_guard import EXCHANGE, guard

_SLOWEST = 100_000
"""Bytes per second; a slower body is given up."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables for certificates of requests and curl; OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR itself."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds after which a request fails."""

    connect: float = 10.0
    silence: float = 20.0
    """Without a byte received."""
    total: float = 60.0
    """In all, without the time that the length of the body adds."""

    def of(self, request: Request) -> float:
        """Return the seconds for a request in all."""
        return self.total + request.most / _SLOWEST


class HttpSource:
    """Files below an http or https address."""

    def __init__(self, url: str, *, user_agent: str, connections: int, timeouts: Timeouts | None = None) -> None:
        """Prepare; the first request connects.

        Args:
            url: ends with a slash; without query or credentials.
            user_agent: names the tool and a contact.
            connections: open at most at once.
            timeouts: for every request.

        Raises:
            QueryError: if the environment sets unusable certificates or proxies.
        """
        self.url = url
        self.connections = connections
        self._user_agent = user_agent
        self._timeouts = timeouts or Timeouts()
        self._proxy, authorization = _proxy(url)
        # To read the authorities takes as long as many a question; http can do without.
        encrypted = "https" in {urlsplit(url).scheme, self._proxy.scheme if self._proxy else None}
        self._trusted = _trusted() if encrypted else True
        # To a proxy that opens a tunnel only the tunnel's request may say it, else the request itself must.
        self._headers, self._tunnel_headers = ({}, authorization) if url.startswith("https:") else (authorization, {})
        self._background = Background(url)
        self._session = self._background.run(self._open())
        # Who forgets to close it, as in a script, is not to read aiohttp's complaints at the end.
        finalize(self, self._background.close, self._session.close)

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        return self._background.run(self._get(path, requested, pin))

    def close(self) -> None:
        """Close the connections and cancel what is under way."""
        self._background.close(self._session.close)

    async def _open(self) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.connections, ssl=self._trusted),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(once,),
            max_line_size=8190,
            max_field_size=8190,
        )
        return guard(session)

    async def _get(self, path: str, requested: RequestedRange, pin: FileVersion | None) -> Response:
        request = Request(f"{self.url}{path}", requested, pin)
        headers = dict(self._headers)
        if requested is not None:
            headers["Range"] = range_header(requested)
        if pin and pin.etag and is_strong(pin.etag):
            headers["If-Match"] = pin.etag
        limits = aiohttp.ClientTimeout(
            total=self._timeouts.of(request), sock_connect=self._timeouts.connect, sock_read=self._timeouts.silence
        )
        EXCHANGE.set(exchange := Exchange())
        address = URL(self.url + quote(path, safe="/=+,~"), encoded=True)
        try:
            async with self._session.get(
                address,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._tunnel_headers,
            ) as answer:
                response = await request.read(answer.status, _headers(answer), answer.content.read)
            return request.of(exchange, response)
        except aiohttp.ClientConnectorCertificateError as error:
            message = (
                f"{self.url} shows a certificate that is not trusted ({_reason(error.certificate_error)}); "
                "SSL_CERT_FILE can name the authorities to trust"
            )
            raise SourceUnavailable(message) from error
        except aiohttp.InvalidURL as error:
            message = f"{self.url} names no host that can be asked; give its name, or its number as 127.0.0.1 is one"
            raise QueryError(message) from error
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, CatalogueError):
                raise
            if self._proxy is None and _refused(error):
                message = f"nobody listens at {self.url} (connection refused)"
                raise ConnectionRefused(message) from error
            raise no_answer(request.where, error) from error


async def once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once.

    aiohttp repeats a request by itself when a connection breaks, past the rate limit and our counts.
    """
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        message = "the connection broke"
        raise aiohttp.ClientConnectionError(message) from error


def _refused(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED


def no_answer(where: str, error: BaseException) -> Unreachable:
    """Return the error for a failed request by its type: texts of aiohttp can contain headers."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        message = (
            f"the name {error.host} cannot be resolved; check whether this machine is online, the name is right, "
            "and a proxy is needed (HTTPS_PROXY)"
        )
        return NameNotResolved(message)
    cause = None if isinstance(error, TimeoutError) else error.__cause__
    return Unreachable(f"{where}: no usable answer ({type(cause or error).__name__})")


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined (RFC 9110, section 5.3) and fail later checks."""
    return {name.lower(): ", ".join(answer.headers.getall(name)) for name in answer.headers}


def _reason(error: Exception) -> str:
    return str(getattr(error, "verify_message", "")) or type(error).__name__


def _trusted() -> ssl.SSLContext:
    name = next((name for name in _BUNDLES if os.environ.get(name)), None)
    bundle = os.environ[name] if name else None
    try:
        if bundle and Path(bundle).is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        message = f"{name} names {bundle}, which holds no certificates that can be read ({error.strerror or error})"
        raise QueryError(message) from error


def _proxy(url: str) -> tuple[URL | None, dict[str, str]]:
    """Return the environment's proxy for an address, and the headers it needs.

    aiohttp would also read .netrc and send the user's name and password to the host.
    """
    parts = urlsplit(url)
    name = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not name:
        return None, {}
    proxy = URL(name if "://" in name else f"http://{name}")
    if proxy.scheme not in {"http", "https"}:
        message = f"the environment names a {proxy.scheme} proxy for {url}; only http and https proxies can be used"
        raise QueryError(message)
    if proxy.user is None:
        return proxy, {}
    secret = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return proxy.with_user(None), {"Proxy-Authorization": f"Basic {secret}"}
