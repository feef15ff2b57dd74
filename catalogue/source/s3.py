"""Files in S3, by s3fs's session and credentials, under our own checks."""

from typing import Any, cast

import fsspec.asyn
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from catalogue.errors import CatalogueError, Denied, Unreachable
from catalogue.ranges import Pin, range_header
from catalogue.source.response import Request, Response, Wanted, is_strong


class S3Source:
    """Files below an ``s3://bucket/prefix/``.

    Credentials, region, profile and endpoint are whatever the user's AWS settings and environment say.
    """

    def __init__(self, url: str, *, user_agent: str, connections: int) -> None:
        """Prepare; nothing is connected to before the first request.

        Args:
            url: ends with a slash.
            user_agent: appended to the SDK's own.
            connections: open at most at once.
        """
        self.url = url
        self.connections = connections
        self._bucket, _, self._prefix = url.removeprefix("s3://").partition("/")
        self._fs = s3fs.S3FileSystem(
            # Retries are the caller's, who counts them; the cache of instances would share ours with strangers.
            config_kwargs={
                "max_pool_connections": connections,
                "retries": {"total_max_attempts": 1},
                "user_agent_extra": user_agent,
            },
            skip_instance_cache=True,
        )

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:
        """See ``Source.get``."""
        return cast("Response", fsspec.asyn.sync(self._fs.loop, self._get, path, wanted, pin))

    def close(self) -> None:
        """Connections are closed with the process; s3fs offers no other way."""

    async def _get(self, path: str, wanted: Wanted, pin: Pin | None) -> Response:
        request = Request(f"{self.url}{path}", wanted, pin)
        asked: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + path}
        if wanted is not None:
            asked["Range"] = range_header(wanted)
        if pin and pin.etag and is_strong(pin.etag):
            asked["IfMatch"] = pin.etag
        try:
            client = await self._fs.set_session()
            answer = await client.get_object(**asked)
            status = answer["ResponseMetadata"]["HTTPStatusCode"]
            headers = {name.lower(): value for name, value in answer["ResponseMetadata"]["HTTPHeaders"].items()}
            async with answer["Body"] as body:
                if status != request.good_status:
                    raise request.refuse(status, headers, "")
                given, total = request.check(headers)
                most = len(given) if given else request.most
                content = bytearray()
                while len(content) <= most and (chunk := await body.read(most + 1 - len(content))):
                    content += chunk
                return request.response(bytes(content), given, total, headers)
        except ClientError as error:
            meta = error.response.get("ResponseMetadata", {})
            code = f"<Code>{error.response.get('Error', {}).get('Code')}</Code>"
            raise request.refuse(meta.get("HTTPStatusCode", 500), meta.get("HTTPHeaders", {}), code) from error
        except NoCredentialsError as error:
            message = (
                f"{self.url} needs AWS credentials and none were found; set them up (aws configure), "
                "or use the default source, which needs none"
            )
            raise Denied(message) from error
        except (BotoCoreError, TimeoutError, OSError) as error:
            if isinstance(error, CatalogueError):
                raise
            message = f"{request.where}: no usable answer ({type(error).__name__})"
            raise Unreachable(message) from error
