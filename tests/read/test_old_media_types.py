"""Media types of old crawls, where some captures have only a declared one."""

from collections import Counter
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from catalogue.cdx.lines import lines_of
from catalogue.settings import Settings
from tests.support.cdx_indexes import make_index, replace_index
from tests.support.crawls import crawl_of, table

OLD, TYPED = "CC-MAIN-2017-09", "CC-MAIN-2018-39"
DETECTED = "content_mime_detected"
TYPES: dict[str, set[str | None]] = {
    "text/html": {"text/html"},
    "text/h*": {"text/html"},
    "application/*": {"application/pdf"},
    "unk,text/plain": {None, "text/plain"},
    "warc/revisit": {"warc/revisit"},
    "warc/*": {"warc/revisit"},
}
"""Values of a filter, and the types that match."""


@pytest.mark.parametrize(
    ("share", "count", "group"),
    [(1 / 3, 600, 250), (0, 600, 250), (1, 600, 250), (None, 600, 250), (1 / 3, 12, 1), (1, 12, 1)],
    ids=["some", "none", "all", "no column", "single ones", "all single ones"],
)
def test_declared_types_replace_missing_ones_in_each_index(
    tmp_path: Path, share: float | None, count: int, group: int
) -> None:
    """Row groups and blocks have different captures next to each other, or only one, which decide nothing."""
    declared = [("Text/PLAIN", "text/html", "text/plain", "warc/revisit")[number % 4] for number in range(count)]
    missing = round(count * (1 if share is None else share))
    detected = [*[None] * missing, *(("text/html", "application/pdf")[n % 4 // 3] for n in range(missing, count))]
    # Writers have several forms of an unknown type.
    written = [each or (None, "unk", "", "-")[n % 4] for n, each in enumerate(detected)]
    for crawl in (OLD, TYPED):
        rows = table(
            [f"com,example)/{number:05}" for number in range(count)],
            content_mime_type=pa.array(declared),
            content_mime_detected=pa.array(written, pa.string()),
            fetch_time=pa.array([datetime(2017, 2, 20, tzinfo=UTC)] * count, pa.timestamp("ms", "UTC")),
            warc_filename=pa.array([f"crawl-data/{crawl}/segments/1/warc/a.warc.gz"] * count),
            warc_record_offset=pa.array(range(count), pa.int64()),
            warc_record_length=pa.array([50] * count, pa.int64()),
        )
        (batch,) = rows.to_batches()
        rows = rows.drop_columns([DETECTED] if share is None else [])
        crawl_of(tmp_path, rows, crawl=crawl, row_group_size=group, use_dictionary=["content_mime_type", DETECTED])
        replace_index(tmp_path, make_index(crawl, lines_of(batch), lines_a_block=min(group, 50)))
    known = [one or other for one, other in zip(detected, declared, strict=True)]
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(tmp_path), cache=tmp_path / "cache")) as cat:
        cat.harvest([OLD, TYPED], values=iter(["content_mime_type", DETECTED]))
        for (mime, matching), index in product(TYPES.items(), ("columnar", "cdx")):
            # The type of a revisit is only declared.
            both = (declared, declared) if mime.startswith("warc/") else (detected, known)
            lower = [[each and each.lower() for each in types] for types in both]
            numbers = [[n for n in range(count) if types[n] in matching] for types in lower]
            asked: dict[str, Any] = {"crawls": [TYPED, OLD], "columns": ["url_surtkey"], "subsets": "all"}
            found = cat.captures("*", mime=mime, index=index, **asked)
            assert [int(row["url_surtkey"][-5:]) for row in found] == [n for each in numbers for n in each], mime
            assert cat.captures("*", mime=mime, status=404, index=index, **asked).count() == sum(
                n % 3 == 1 for each in numbers for n in each
            )
        for crawl, of_pages in ((OLD, known), (TYPED, detected)):
            assert cat.site("example.com", crawl=crawl).types == Counter(each or "unknown" for each in of_pages)
