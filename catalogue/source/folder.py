"""Files in a folder on this machine."""

from pathlib import Path

from catalogue.errors import Missing, Unreachable
from catalogue.ranges import Pin, resolve
from catalogue.source.response import MAX_DOCUMENT, Request, Response, Wanted


class FolderSource:
    """Files below a folder. A file's ETag is made of its size and time of change."""

    def __init__(self, folder: Path, *, connections: int = 4) -> None:
        """Prepare; nothing is opened before the first request."""
        self.url = folder.resolve().as_uri() + "/"
        self.connections = connections
        self._folder = folder.resolve()

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:
        """See ``Source.get``."""
        request = Request(f"{self._folder / path}", wanted, pin)
        try:
            with (self._folder / path).open("rb") as file:
                status = (self._folder / path).stat()
                total = status.st_size
                etag = f'"{total:x}-{status.st_mtime_ns:x}"'
                if wanted is None:
                    return request.response(file.read(MAX_DOCUMENT + 1), None, total, {"etag": etag})
                if total == 0 or (pin and pin.size != total):
                    raise request.refuse(416 if total == 0 else 412, {}, "")
                given = resolve(wanted, total)
                headers = {"etag": etag, "content-range": f"bytes {given.start}-{given.end - 1}/{total}"}
                request.check(headers)
                file.seek(given.start)
                return request.response(file.read(len(given)), given, total, headers)
        except FileNotFoundError as error:
            if isinstance(error, Missing):
                raise
            message = f"{request.where} does not exist"
            raise Missing(message) from error
        except OSError as error:
            message = f"{request.where} cannot be read: {error.strerror}"
            raise Unreachable(message) from error

    def close(self) -> None:
        """Nothing is open."""
