"""Files over HTTP: aiohttp on a loop of its own, so that it works in a notebook whose loop is running."""

import asyncio
import os
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from catalogue.errors import CatalogueError, GivenUp, Unreachable
from catalogue.ranges import Pin, range_header
from catalogue.source.response import Request, Response, Wanted, is_strong

_T = TypeVar("_T")

_EXCERPT = 2000
"""Bytes of an error's body that are read: Common Crawl says there how to get in touch when it blocks somebody."""
_SLOWEST = 100_000
"""Bytes a second below which a body is given up, on top of a minute."""


class HttpSource:
    """Files below an http or https address."""

    def __init__(self, url: str, *, user_agent: str, connections: int) -> None:
        """Prepare; nothing is connected to before the first request.

        Args:
            url: ends with a slash; without query or credentials.
            user_agent: names the tool and whom to write to.
            connections: open at most at once.
        """
        self.url = url
        self.connections = connections
        self._user_agent = user_agent
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"http {url}", daemon=True)
        self._thread.start()
        self._session = self._run(self._open())

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:
        """See ``Source.get``."""
        if self._session.closed:
            message = f"{self.url} was closed"
            raise GivenUp(message)
        try:
            return self._run(self._get(path, wanted, pin))
        except CancelledError as error:
            message = f"{self.url} was closed while a request was under way"
            raise GivenUp(message) from error

    def close(self) -> None:
        """Close the connections, breaking off what is under way."""
        if self._thread.is_alive():
            self._run(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> aiohttp.ClientSession:
        # aiohttp honours the proxy variables itself; these name a bundle of certificates for requests and curl.
        bundle = next((os.environ[n] for n in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(n)), None)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.connections, ssl=ssl.create_default_context(cafile=bundle)),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=True,
            max_line_size=8190,
            max_field_size=8190,
        )

    async def _shut(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._session.close()

    async def _get(self, path: str, wanted: Wanted, pin: Pin | None) -> Response:
        request = Request(f"{self.url}{path}", wanted, pin)
        headers = {}
        if wanted is not None:
            headers["Range"] = range_header(wanted)
        if pin and pin.etag and is_strong(pin.etag):
            headers["If-Match"] = pin.etag
        timeout = aiohttp.ClientTimeout(total=60 + request.most / _SLOWEST, sock_connect=10, sock_read=20)
        address = URL(self.url + quote(path, safe="/=+,~"), encoded=True)
        try:
            async with self._session.get(address, headers=headers, timeout=timeout, allow_redirects=False) as answer:
                return await _read(answer, request)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, CatalogueError):
                raise
            # The texts of aiohttp can hold whole headers; what kind of failure it was says enough.
            message = f"{request.where}: no usable answer ({type(error).__name__})"
            raise Unreachable(message) from error


async def _read(answer: aiohttp.ClientResponse, request: Request) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.status != request.good_status:
        # Of a whole file that nobody asked for nothing is read, unless its type says that it is an error's text.
        whole_file = answer.status == 200 and "xml" not in headers.get("content-type", "")  # noqa: PLR2004
        excerpt = b"" if whole_file else await answer.content.read(_EXCERPT)
        answer.close()
        raise request.refuse(answer.status, headers, excerpt.decode("utf-8", "replace"))
    given, total = request.check(headers)
    most = len(given) if given else request.most
    body = bytearray()
    while len(body) <= most and (chunk := await answer.content.readany()):
        body += chunk
    if len(body) > most:
        answer.close()
    return request.response(bytes(body), given, total, headers)
