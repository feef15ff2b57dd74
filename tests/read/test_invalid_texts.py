"""Texts that are not UTF-8 are an error where they would be returned, and disturb no query of other rows."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.errors import BadFooter
from catalogue.session import Session
from catalogue.settings import Settings
from tests.support.amounts import in_part
from tests.support.crawls import CRAWL, crawl_of, table

KEYS = [f"com,host)/{number:05}" for number in range(9000)]
INVALID = 5000
"""Number of the row with an invalid text."""


def invalid(texts: list[str]) -> pa.StringArray:
    values = pa.array([text.encode() if row != INVALID else text.encode() + b"\xff" for row, text in enumerate(texts)])
    return pa.StringArray.from_buffers(len(values), *values.buffers()[1:])


@in_part(3)
@pytest.mark.parametrize("pages", [True, False], ids=["pages", "whole"])
@pytest.mark.parametrize("column", [KEY_COLUMN, "url"])
def test_only_returned_texts_have_to_be_valid(tmp_path: Path, settings: Settings, column: str, *, pages: bool) -> None:
    rows = table(KEYS)
    texts = invalid(rows.column(column).to_pylist())
    rows = rows.set_column(rows.schema.get_field_index(column), column, texts)
    folder = crawl_of(tmp_path / "source", rows, write_page_index=pages, write_statistics=column != KEY_COLUMN)
    chosen = replace(settings, source=str(folder), cache_size=0, bandwidth=1e5, latency=0.001)
    with Catalogue(Session(tmp_path / "data", chosen)) as cat:
        cat.harvest(CRAWL)

        def ask(key: str, where: str | None = None) -> pa.Table:
            return cat.captures(
                f"host.com/{key}*", columns=[KEY_COLUMN, "url"], index="columnar", where=where
            ).to_arrow()

        for around in (INVALID - 1, INVALID + 1):
            assert ask(f"{around:05}").column(KEY_COLUMN).to_pylist() == [KEYS[around]]
        for where in (None, "length(url) > 1", f"{KEY_COLUMN} LIKE 'com%'"):
            with pytest.raises(BadFooter, match=rf"column {column}: .*UTF"):
                ask(f"{INVALID:05}", where)
