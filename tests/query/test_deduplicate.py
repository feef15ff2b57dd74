"""Equal captures: the first or the latest one is kept."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalogue import Catalogue, QueryError
from catalogue.query.deduplicate import Distinct
from tests.support.commands import Command

COLUMNS = ["url_surtkey", "content_digest", "fetch_time", "warc_filename", "warc_record_offset", "crawl"]
BY = {"url": "url_surtkey", "digest": "content_digest", None: "url_surtkey"}

Row = dict[str, Any]


def first_of_each(rows: list[Row], column: str) -> list[Row]:
    found: dict[object, Row] = {}
    for number, row in enumerate(rows):
        found.setdefault(number if row[column] is None else row[column], row)
    return list(found.values())


def last_of_each(rows: list[Row], column: str) -> list[Row]:
    """Return the latest rows in the order of all rows; the first of those with the same time."""
    best: dict[object, tuple[Any, int]] = {}
    for number, row in enumerate(rows):
        each = number if row[column] is None else row[column]
        if each not in best or row["fetch_time"] > best[each][0]:
            best[each] = (row["fetch_time"], number)
    return [rows[number] for _, number in sorted(best.values(), key=lambda each: each[1])]


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("pattern", "unique"), [("*.com", "url"), ("*.org", "digest"), ("*.net", None)])
def test_equals_a_reference_implementation(
    harvested: Catalogue, whole_crawls: list[str], pattern: str, unique: str | None
) -> None:
    requested: dict[str, Any] = {"subsets": "all", "patterns": pattern, "columns": COLUMNS, "crawls": whole_crawls}
    rows = harvested.captures(**requested).to_arrow().to_pylist()
    expected = last_of_each(rows, BY[unique])
    latest = harvested.captures(**requested, unique=unique, latest=True)
    assert latest.to_arrow().to_pylist() == expected
    assert 0 < len(expected) < len(rows)
    if unique:
        first = harvested.captures(**requested, unique=unique)
        assert first.to_arrow().to_pylist() == first_of_each(rows, BY[unique])
        assert first.count() == len(first_of_each(rows, BY[unique]))
    by_crawl = {crawl: sum(row["crawl"] == crawl for row in expected) for crawl in {row["crawl"] for row in expected}}
    assert latest.count_by_crawl() == by_crawl


def test_limit_applies_after_deduplication(harvested: Catalogue, whole_crawls: list[str]) -> None:
    requested: dict[str, Any] = {"subsets": "all", "patterns": "*.com", "crawls": whole_crawls, "unique": "digest"}
    every = harvested.captures(**requested, columns=["url"]).to_arrow()
    for limit in (0, 1, 50):
        some = harvested.captures(**requested, columns=["url"], limit=limit)
        assert (some.to_arrow(), some.count()) == (every.slice(0, limit), limit)
    assert every.schema.names == ["url", "crawl", "subset"]


def test_deduplicates_by_any_column_in_order(harvested: Catalogue, whole_crawls: list[str]) -> None:
    requested: dict[str, Any] = {"subsets": "all", "patterns": "*.com", "crawls": whole_crawls}
    statuses = harvested.captures(**requested, columns=["fetch_status"], unique="fetch_status").to_arrow()
    assert len(set(statuses.column("fetch_status").to_pylist())) == statuses.num_rows > 1
    ordered = harvested.captures(**requested, columns=["url_surtkey"], latest=True, ordered=True).to_arrow()
    keys = ordered.column("url_surtkey").to_pylist()
    assert keys == sorted(keys, key=str.encode)
    assert len(set(keys)) == len(keys)


def test_keeps_rows_without_a_value() -> None:
    chance = random.Random(1)
    values = [chance.choice(["a", "b", None]) for _ in range(50)]
    times = [chance.choice([1, 2, 3, None]) for _ in range(50)]
    batch = pa.record_batch({"value": values, "time": times, "row": range(50)})
    for time in (None, "time"):
        distinct = Distinct("value", time, None, ("value", "row"))
        kept = distinct.of([batch, batch.slice(0, 0)], batch.schema)
        rows = [row for remaining in kept for row in remaining.to_pylist()]
        assert [row["value"] for row in rows].count(None) == values.count(None)
        assert {"a", "b"} < {row["value"] for row in rows}
        assert len(rows) == values.count(None) + 2
        if time:
            latest = {row["value"]: times[row["row"]] for row in rows if row["value"]}
            assert latest == {"a": 3, "b": 3}
        assert [*distinct.of([], batch.schema)] == []


def test_rejects_invalid_columns(harvested: Catalogue) -> None:
    with pytest.raises(QueryError, match="did you mean content_digest"):
        harvested.captures("*", unique="content_digst")
    with pytest.raises(QueryError, match="leave out limit, ordered, unique and latest"):
        harvested.captures("*", unique="url").to_dask()
    with pytest.raises(QueryError, match="without a limit"):
        harvested.captures("*", unique="url", limit=5).count_by_crawl()


def test_command_refuses_parts_without_duplicates(asking: Command, tmp_path: Path) -> None:
    refused = asking("query", "*.org", "--unique", "digest", "-o", f"{tmp_path}/folder/")
    assert refused.status == 2
    assert "leave out --limit, --unique and --latest" in refused.err
