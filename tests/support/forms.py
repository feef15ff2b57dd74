"""Records in every output format, and the records in the files of an output."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem

from catalogue.commoncrawl.capture import Capture
from catalogue.formatting import json_line
from catalogue.output.formats import RecordFormat, payload_line, warc_format
from catalogue.output.open_output import open_output
from catalogue.output.parquet_format import encode_row, seal, unseal
from catalogue.records.metadata import row_of
from catalogue.records.record import Record, read_record
from tests.support.archives import digest, warc
from tests.support.fetched import records_in

FORMS = {"warc": "out.warc.gz", "text": "out.jsonl", "parquet": "out.parquet", "payload": "out"}


def sixty_records() -> list[Record]:
    """Return records of three sizes."""
    found, offset = [], 0
    for number in range(60):
        body = f"<p>page {number}</p>".encode() * random.Random(number).choice([1, 50, 3000])
        url = f"https://example.com/Seite/{number}"
        member = gzip.compress(warc(body, WARC_Target_URI=url, WARC_Record_ID=f"<urn:x:{number}>"))
        meant = Capture("crawl-data/CC-MAIN-2022-33/x.warc.gz", offset, len(member), url, digest=digest(body))
        found.append(read_record(meant, member))
        offset += len(member)
    return found


def form_of(name: str) -> RecordFormat:
    def look(record: Record) -> dict[str, Any]:
        return {"text": record.payload.decode(), "content": None}

    forms = {
        "text": RecordFormat(name, lambda record: json_line({"url": record.url, **look(record)})),
        "warc": warc_format(),
        "payload": RecordFormat(name, payload_line),
        "parquet": RecordFormat(name, lambda record: encode_row(row_of(record, look)), seal=seal, unseal=unseal),
    }
    return forms[name]


def fill(output: str | Path, form: str, records: Iterable[Record], cache: Path, most: int | None = None) -> list[str]:
    """Write records as a fetch does; return the names of the files."""
    chosen = form_of(form)
    with open_output(output, chosen, {"form": form}, most=most, cache=cache) as (parts, ledger):
        for record in records:
            if not ledger.is_stored(record.capture):
                parts.add(record.capture, chosen.encode(record))
        return parts.finish()


def urls_in(folder: Path, form: str, names: Iterable[str]) -> Counter[str]:
    """Return the URLs in the files of an output, read by other libraries; each file must be complete."""
    files = [folder / name for name in names]
    if form == "warc":
        return Counter(url for _, url, _ in records_in(*files))
    if form == "parquet":
        return Counter(url for file in files for url in pq.read_table(file, columns=["url"])["url"].to_pylist())
    lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    for line in lines:
        if form == "payload":
            assert (files[0].parent / line["file"]).stat().st_size == line["bytes"]
    return Counter(line["url"] for line in lines)


def urls_of(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.url for record in records)


class Flaky(MemoryFileSystem):  # type: ignore[misc] # it has no types
    """A remote store that fails if ``fail`` returns true, and truncates files if ``cut``."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    fail: Callable[[str], bool] = staticmethod(lambda _: False)
    cut = False

    def put_file(self, lpath: str, rpath: str, **more: Any) -> None:
        if Flaky.fail(rpath):
            message = "secret"
            raise PermissionError(message)
        super().put_file(lpath, rpath, **more)
        if Flaky.cut:
            self.pipe_file(rpath, b"")


def elsewhere() -> Iterator[str]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.store.clear()
    Flaky.pseudo_dirs[:] = [""]
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), False
    yield "flaky://bucket/a prefix"
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), False


def copied(url: str, folder: Path) -> Path:
    files, root = fsspec.url_to_fs(url)
    for name in files.find(root):
        target = folder / str(name).removeprefix(f"{root}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files.cat_file(name))
    return folder
