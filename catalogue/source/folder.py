"""Files in a local folder."""

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from catalogue.errors import CatalogueError, Forbidden, NotFound, SourceUnavailable, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange, content_range
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
    total = status.st_size
    headers = {"etag": f'"{total:x}-{status.st_mtime_ns:x}"', "content-length": f"{total}"}
    if request.requested is not None:
        match request.requested:  # as an HTTP server does
            case SuffixRange(length):
                start, end = max(0, total - length), total
            case ByteRange(start, last):
                end = min(last, total)
        if start >= end:
            raise request.refuse(416, {"content-range": f"bytes */{total}"}, "")
        headers |= {"content-range": content_range(ByteRange(start, end), total), "content-length": f"{end - start}"}
    sent, total = request.check(headers)
    if not sent:
        return request.response(b"", None, 0, headers)
    file.seek(sent.start)
    return request.response(file.read(len(sent)), sent, total, headers)
