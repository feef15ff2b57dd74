"""Fetch records: 486 in 20 archives, and 3,000 in 2,900, with one request each and with merged requests.

The archives are sparse files of a gigabyte with only the requested records. How many records share a request depends
on their offsets, so two cases are measured: random offsets, and runs as of a crawler that fetches page after page.
"""

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from benchmarks.clients.fetch_records import RATE, THREADS
from benchmarks.clients.lookup_asking import Step
from benchmarks.paced import LATENCY, serving
from benchmarks.processes import run, wait_for_quiet
from benchmarks.report import say, table
from benchmarks.summary import OURS, Measurement, Result
from catalogue.commoncrawl.capture import format_timestamp

SIZE = 1_000_000_000
"""Bytes of an archive."""
_PAGE = 30_000
"""Bytes of a page, which do not compress."""
_RUN = 8
"""Records of a run, on average."""
_BETWEEN = 200_000
"""Bytes between two records of a run, on average."""
_BURST = 10
"""Requests that the rate limit allows at once."""


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print; only ``full`` fetches 3,000 records one at a time, which takes two minutes."""
    for records, archives, runs in ((486, 20, False), (486, 20, True), (3000, 2900, False)):
        where = "in runs" if runs else "anywhere"
        say(f"{records:,} records in {archives:,} archives, {where}")
        with TemporaryDirectory(prefix="benchmarks-") as folder:
            rows = write_archives(Path(folder), records, archives, runs=runs)
            clients = [*THREADS, OURS] if full or records < 1000 else [*list(THREADS)[1:], OURS]
            yield from _measure(Path(folder), rows, f"{records:,} records in {archives:,} archives, {where}", clients)


def _measure(folder: Path, rows: list[dict[str, object]], title: str, clients: Sequence[str]) -> list[Result]:
    measured: list[tuple[str, Step, int]] = []
    with serving(folder, str(rows[0]["warc_filename"])) as (server, _), TemporaryDirectory() as home:
        file = Path(home) / "captures.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        for client in clients:
            wait_for_quiet()
            command = ["benchmarks.clients.fetch_records", server.url, str(file), client]
            ran = run(command, home=Path(home))
            measured.append((client, Step(**json.loads(ran.output)), ran.cost.peak_bytes))
    table(
        f"{title}, {1000 * LATENCY:.0f} ms",
        ["", "records", "requests", "requests a record", "MB", "seconds", "CPU s", "peak MB", f"at {RATE}/s"],
        [
            [
                client,
                step.rows,
                step.gets,
                step.gets / len(rows),
                step.bytes / 1e6,
                step.seconds,
                step.cpu_seconds,
                peak / 1e6,
                max(0, step.gets - _BURST) / RATE,
            ]
            for client, step, peak in measured
        ],
    )
    return [
        Measurement(title, client, step.gets, step.bytes, step.seconds, step.cpu_seconds, peak)
        for client, step, peak in measured
    ]


def write_archives(folder: Path, records: int, archives: int, *, runs: bool) -> list[dict[str, object]]:
    """Write archives; return their records as rows of the index."""
    rng = random.Random(records)
    counts = [0] * archives
    for number in range(records):  # each archive has a record
        counts[number if number < archives else rng.randrange(archives)] += 1
    rows: list[dict[str, object]] = []
    for archive, count in enumerate(counts):
        name = f"crawl-data/CC-MAIN-2022-33/segments/1659882570651.49/warc/CC-MAIN-{archive:05}.warc.gz"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            end = 0
            for offset in _offsets(rng, count, runs=runs):
                row, member = _record(rng, len(rows))
                file.seek(max(end, offset))
                rows.append(row | {"warc_filename": name, "warc_record_offset": file.tell()})
                end = file.tell() + file.write(member)
            file.truncate(max(end, SIZE))
    return rows


def _offsets(rng: random.Random, count: int, *, runs: bool) -> list[int]:
    if not runs:
        return sorted(rng.randrange(SIZE - _PAGE * 2) for _ in range(count))
    offsets: list[int] = []
    while len(offsets) < count:
        offset = rng.randrange(SIZE - 20 * _BETWEEN)
        for _ in range(min(rng.randint(1, 2 * _RUN - 1), count - len(offsets))):
            offsets.append(offset)
            offset += _PAGE + int(rng.expovariate(1 / _BETWEEN))
    return sorted(offsets)


def _record(rng: random.Random, number: int) -> tuple[dict[str, object], bytes]:
    url = f"https://example.com/{number:05}"
    time = datetime(2022, 8, 8, tzinfo=UTC) + timedelta(seconds=number)
    file = BytesIO()
    headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
    writer = WARCWriter(file, gzip=True)
    record = writer.create_warc_record(
        url,
        "response",
        payload=BytesIO(rng.randbytes(_PAGE)),
        http_headers=headers,
        warc_headers_dict={"WARC-Date": f"{time:%Y-%m-%dT%H:%M:%SZ}"},
    )
    writer.write_record(record)
    digest = record.rec_headers.get_header("WARC-Payload-Digest").removeprefix("sha1:")
    member = file.getvalue()
    return {
        "url": url,
        "fetch_time": format_timestamp(time),
        "fetch_status": 200,
        "content_digest": digest,
        "warc_record_length": len(member),
    }, member
