"""The rows of a result are in one order, whichever index answers."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings as trying

from catalogue import Catalogue
from catalogue.cdx.columns import COLUMNS
from catalogue.commoncrawl.crawls import SUBSETS, newest_first
from catalogue.surt import parse_pattern
from tests.read.test_answers import Scan, random_patterns
from tests.support.mirrors import whole_table

NAMES = [name for name in COLUMNS if name not in {"crawl", "subset", "content_mime_type"}]
"""A missing media type of the server is ``unk`` in lines, and null in some Parquet files."""
CONDITIONS = [
    *["true"] * 4,
    "fetch_status >= 300",
    "warc_record_length < 900",
    "content_languages IS NULL OR fetch_redirect IS NOT NULL",
    "fetch_time >= TIMESTAMPTZ '2022-08-10 00:00:00+00'",
]

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def scan(whole_mirror: Path) -> Iterator[Scan]:
    made = Scan(whole_table(whole_mirror, [*NAMES, "url_host_name", "crawl", "subset"]))
    with made.connection:
        yield made


@pytest.fixture(scope="module")
def crawls(columnar: Catalogue) -> list[str]:
    return newest_first(columnar.session.metadata().crawls)


def inorder(table: pa.Table, columns: Sequence[str]) -> list[Row]:
    """Sort rows as documented; return these columns, crawl and subset."""
    crawls = newest_first(table["crawl"].to_pylist())
    others = sorted((name for name in columns if name != "url_surtkey"), key=lambda name: name != "fetch_time")

    def place(row: dict[str, Any]) -> Row:
        values = (value.encode() if isinstance(value := row[name], str) else value for name in others)
        known = tuple((value is None, value or 0) if value is None else (False, value) for value in values)
        return (crawls.index(row["crawl"]), SUBSETS.index(row["subset"]), row["url_surtkey"].encode(), *known)

    return [tuple(row[name] for name in (*columns, "crawl", "subset")) for row in sorted(table.to_pylist(), key=place)]


def rows_of(table: pa.Table) -> list[Row]:
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def test_both_indexes_return_the_rows_of_a_scan_in_order(columnar: Catalogue, crawls: list[str], scan: Scan) -> None:
    chance = random.Random(20)
    found = ties = 0
    count = 3 * trying().max_examples
    there: dict[str, set[str]] = {crawl: set() for crawl in crawls}
    for row in scan.everything.group_by(["crawl", "subset"]).aggregate([]).to_pylist():
        there[row["crawl"]].add(row["subset"])
    texts = list(random_patterns(scan.everything, 2 * count, seed=11))
    for number in range(count):
        patterns = texts[number : number + chance.choice([1, 1, 1, 3])]
        subsets = chance.choice([(), [*SUBSETS], ["robotstxt", "warc"], ["crawldiagnostics"]])
        some = chance.choice([crawls, chance.sample(crawls, 2), [chance.choice(crawls)]])
        some = [crawl for crawl in some if not {*subsets}.isdisjoint(there[crawl])] if subsets else some
        some = some or [crawl for crawl in crawls if not {*subsets}.isdisjoint(there[crawl])]
        columns = chance.sample(NAMES, chance.randrange(1, len(NAMES)))
        condition = chance.choice(CONDITIONS)
        rows = scan([parse_pattern(text) for text in patterns], condition)
        kept = [
            crawl in some and (not subsets or subset in subsets)
            for crawl, subset in zip(rows["crawl"].to_pylist(), rows["subset"].to_pylist(), strict=True)
        ]
        expected = inorder(rows.filter(pa.array(kept, pa.bool_())), columns)
        words: dict[str, Any] = {"crawls": some, "subsets": subsets, "columns": columns}
        words |= {"where": condition} if condition != "true" else {}
        limits = {None, chance.randrange(len(expected) + 2), chance.randrange(10)}
        for index in ("columnar", "cdx"):
            for limit in limits:
                answer = columnar.captures(patterns, **words, index=index, limit=limit).to_arrow()
                assert rows_of(answer) == expected[:limit], (patterns, words, index, limit)
        found += len(expected)
        if "url_surtkey" in columns:
            ties += len(expected) - len({(row[columns.index("url_surtkey")], *row[-2:]) for row in expected})
    assert found > 500 * count / 3 / 20
    assert ties
