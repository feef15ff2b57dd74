"""Files in a local folder."""

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from catalogue.errors import CatalogueError, Forbidden, NotFound, SourceUnavailable, Unreachable, WrongLength
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Request, RequestedRange, Response


class FolderSource:
    """Files below a folder, with ETags made of size and modification time."""

    def __init__(self, folder: Path, *, connections: int = 4) -> None:
        self.url = folder.resolve().as_uri() + "/"
        self.connections = connections
        self._folder = folder.resolve()
        self._closed = False

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        file = self._folder / path
        request = Request(f"{file}", requested, pin)
        if self._closed:
            raise SourceUnavailable(f"{self.url} was closed")
        try:
            # A pipe is not opened: that would block.
            is_inside = ".." not in file.parts and file.is_relative_to(self._folder)
            if is_inside and S_ISREG(file.stat().st_mode):
                with file.open("rb") as opened:
                    return _read(opened, request)
        except CatalogueError:
            raise
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
            pass
        except PermissionError as error:
            raise Forbidden(f"{request.where} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise Unreachable(f"{request.where} cannot be read: {error.strerror}") from error
        raise NotFound(f"{request.where} does not exist")

    def close(self) -> None:
        self._closed = True


def _read(file: BinaryIO, request: Request) -> Response:
    status = os.fstat(file.fileno())
    size, etag = status.st_size, f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
    start, end = 0, size
    match request.requested:
        case None:
            request.check_document(size)
        case SuffixRange(length):
            start = max(0, size - length)
        case ByteRange(first, last):
            start, end = first, min(last, size)
    if request.requested is not None and start >= end:
        raise request.refuse(416, {"content-range": f"bytes */{size}"}, "")
    request.check_version(size, etag)
    if isinstance(request.requested, ByteRange) and end < request.requested.end:
        raise request.is_shorter()
    file.seek(start)
    body = file.read(end - start)
    if len(body) != end - start:  # the file was cut since then
        raise WrongLength(f"{request.where}: received {len(body):,} bytes; expected {end - start:,}")
    return Response(body, start, size, etag, None)
