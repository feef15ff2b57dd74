"""Records in the forms in which people keep them."""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Protocol

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from catalogue.record import Record


class Form(Protocol):
    """How records become bytes of a file that goes on where it was cut off."""

    suffix: str
    """Of the file's name, with its dot."""

    def head(self, name: str) -> bytes:
        """What a file of this name begins with."""

    def add(self, record: Record) -> bytes:
        """What a record adds to it; called from several threads.

        Raises:
            FormatError: if it cannot be had in this form.
        """


class Warc:
    """WARC files: the records as they were archived, behind one that says where they come from."""

    suffix = ".warc.gz"

    def __init__(self, about: Mapping[str, str]) -> None:
        """Take what the first record is to say: fields of ``application/warc-fields``."""
        self._about = dict(about)

    def head(self, name: str) -> bytes:
        """See ``Form``."""
        file = BytesIO()
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(name, self._about))
        return file.getvalue()

    def add(self, record: Record) -> bytes:
        """See ``Form``; what was archived as ARC becomes WARC."""
        return record.member if record.archive == "warc" else _as_warc(record)


def _as_warc(record: Record) -> bytes:
    file = BytesIO()
    writer = WARCWriter(file, gzip=True)
    time = record.time
    headers = {"WARC-Date": f"{time:%Y-%m-%dT%H:%M:%SZ}"} if time else {}
    if address := record.header("ip-address"):
        headers["WARC-IP-Address"] = address
    http = None
    if record.status_line or record.http_headers:
        http = StatusAndHeaders(record.status_line, list(record.http_headers), protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(
            record.url.replace(" ", "%20"),  # ARC files have such, and WARC files must not
            "response" if http else "resource",
            payload=BytesIO(record.body),
            length=len(record.body),
            http_headers=http,
            warc_headers_dict=headers,
        )
    )
    return file.getvalue()


class Lines:
    """JSON lines of whatever is made of a record."""

    suffix = ".jsonl"

    def __init__(self, make: Callable[[Record], Mapping[str, Any]]) -> None:
        """Take what makes an object of a record."""
        self._make = make

    def head(self, name: str) -> bytes:  # noqa: ARG002 - of ``Form``
        """See ``Form``."""
        return b""

    def add(self, record: Record) -> bytes:
        """See ``Form``."""
        return json.dumps(self._make(record), ensure_ascii=False).encode(errors="replace") + b"\n"
