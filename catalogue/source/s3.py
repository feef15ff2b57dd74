"""Files in S3, with the session and credentials of s3fs and our checks."""

import asyncio
import os
from io import BytesIO
from typing import Any

import aiohttp
import s3fs
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from fsspec.asyn import get_loop

from catalogue.errors import CatalogueError, Forbidden, QueryError, SourceUnavailable
from catalogue.source.byte_ranges import FileVersion, range_header
from catalogue.source.checks import EXCERPT, Request, RequestedRange, Response, is_strong
from catalogue.source.http import Timeouts, no_response
from catalogue.source.observe import hide_credentials

_WITHOUT_CREDENTIALS = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
_NO_CERTIFICATES = "NO_CERTIFICATE_OR_CRL_FOUND"
"""OpenSSL's reason for a file without certificates."""


class S3Source:
    """Files below ``s3://bucket/prefix/``, with the user's AWS settings and environment."""

    def __init__(self, url: str, *, user_agent: str, connections: int, timeouts: Timeouts | None = None) -> None:
        hide_credentials()
        self.url = url
        self.connections = connections
        self._timeouts = timeouts or Timeouts()
        self._bucket, _, self._prefix = url.removeprefix("s3://").partition("/")
        # No retries, as the caller retries and counts requests. No shared instance, as this one has other settings.
        self._fs = s3fs.S3FileSystem(
            config_kwargs={
                "connect_timeout": self._timeouts.connect,
                "http_session_cls": _Session,
                "max_pool_connections": connections,
                "read_timeout": self._timeouts.silence,
                # Some stores send the checksum of the complete file with a range.
                "response_checksum_validation": "when_required",
                "retries": {"total_max_attempts": 1},
                "user_agent_extra": user_agent,
            },
            asynchronous=True,
            skip_instance_cache=True,
        )
        self._client: Any = None
        self._process = os.getpid()
        self._closed = False
        self._running: set[asyncio.Task[Any] | None] = set()

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        if self._process != os.getpid():  # the connections belong to the parent process
            raise SourceUnavailable(f"{self.url} was opened by another process; open it again in this one")
        request = Request(f"{self.url}{path}", requested, pin)
        return asyncio.run_coroutine_threadsafe(self._get(request, path), get_loop()).result()

    def close(self) -> None:
        """Close the connections and cancel running requests."""
        if self._process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close(), get_loop()).result()

    async def _close(self) -> None:
        self._closed = True
        for task in filter(None, self._running):
            task.cancel()
        await asyncio.gather(*filter(None, self._running), return_exceptions=True)
        if self._client:
            await self._client.close()

    async def _get(self, request: Request, path: str) -> Response:
        if self._closed:
            raise SourceUnavailable(f"{self.url} was closed")
        task = asyncio.current_task()
        self._running.add(task)
        try:
            return await self._send(request, path)
        except asyncio.CancelledError as error:
            raise SourceUnavailable(f"{self.url} was closed during a request") from error
        finally:
            self._running.discard(task)

    async def _connected(self) -> Any:  # noqa: ANN401 - the SDK has no types
        try:
            return await self._fs.set_session()
        except _WITHOUT_CREDENTIALS:
            raise
        except (BotoCoreError, ValueError) as error:
            raise self._invalid_settings(error) from error

    def _invalid_settings(self, error: BaseException) -> QueryError:
        variables = "AWS_ENDPOINT_URL, AWS_REGION, AWS_CONFIG_FILE, AWS_CA_BUNDLE"
        return QueryError(f"{self.url}: invalid settings of AWS ({type(error).__name__}); check {variables}")

    async def _send(self, request: Request, path: str) -> Response:
        requested, pin = request.requested, request.pin
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + path}
        if requested is not None:
            parameters["Range"] = range_header(requested)
        if pin and pin.etag and is_strong(pin.etag):
            parameters["IfMatch"] = pin.etag
        try:
            async with asyncio.timeout(self._timeouts.of(request)):
                self._client = await self._connected()
                return await _read(await self._client.get_object(**parameters), request)
        except ClientError as error:
            meta = error.response.get("ResponseMetadata", {})
            code = f"<Code>{error.response.get('Error', {}).get('Code')}</Code>"
            raise request.refuse(meta.get("HTTPStatusCode", 500), meta.get("HTTPHeaders", {}), code) from error
        except _WITHOUT_CREDENTIALS as error:
            raise Forbidden(
                f"{self.url} needs AWS credentials, but there are none ({type(error).__name__}); set them up "
                "(aws configure), or use the default source, which needs none"
            ) from error
        # RuntimeError: the SDK cannot parse a header, or the error in a body is nested too deeply.
        except (BotoCoreError, aiohttp.ClientError, TimeoutError, OSError, ValueError, RuntimeError) as error:
            reason = error.kwargs.get("error", error) if isinstance(error, BotoCoreError) else error
            if isinstance(reason, CatalogueError):
                raise
            if isinstance(reason, _Redirect):
                raise request.refuse(reason.status, {"location": reason.location}, "") from None
            raise self._failure(request, reason) from error

    def _failure(self, request: Request, error: BaseException) -> CatalogueError:
        if isinstance(error, FileNotFoundError) or getattr(error, "reason", None) == _NO_CERTIFICATES:
            return self._invalid_settings(error)
        is_known = isinstance(error, TimeoutError | aiohttp.ClientProxyConnectionError)
        cause = error if is_known else error.__cause__ or error
        endpoint = f"{self._client.meta.endpoint_url}/" if self._client else self.url
        host = str(getattr(error, "host", endpoint))
        return no_response(request, cause, url=endpoint, host=host, bundle="AWS_CA_BUNDLE")


async def _read(response: Any, request: Request) -> Response:  # noqa: ANN401 - the SDK has no types
    """Read of the body at most one byte more than is valid."""
    meta = response["ResponseMetadata"]
    status, headers = meta["HTTPStatusCode"], meta["HTTPHeaders"]
    limit = request.max_length + 1 if request.is_expected(status, headers) else EXCERPT
    async with (body := response["Body"]):  # aiobotocore 2 would bind the response of aiohttp
        received = await _start_of(body, limit)
    return request.read(status, headers, BytesIO(received).read)


async def _start_of(body: Any, limit: int) -> bytes:  # noqa: ANN401 - of the SDK or aiohttp
    received = bytearray()
    while len(received) < limit and (piece := await body.read(limit - len(received))):
        received += piece
    return bytes(received)


class _Session(AIOHTTPSession):  # type: ignore[misc] # it has no types
    """The SDK's HTTP session, without redirects and retries."""

    async def _get_session(self, proxy: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy)
        session._middlewares = (_limit_errors, _send_once)  # noqa: SLF001 - the SDK has no argument for it
        return session


class _Redirect(Exception):
    def __init__(self, status: int, location: str) -> None:
        super().__init__(status)
        self.status = status
        self.location = location


async def _limit_errors(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Raise an error for redirects, and cut the bodies of other errors, all of which the SDK would read."""
    response = await send(request)
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location:  # noqa: PLR2004
        response.close()
        raise _Redirect(response.status, location)
    if response.status >= 300:  # noqa: PLR2004
        response._body = await _start_of(response.content, 8 * EXCERPT)  # noqa: SLF001 - there is no argument for it
    return response


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once: aiohttp would repeat it after a broken connection, without the rate limit."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError("the connection broke") from error
