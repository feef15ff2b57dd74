"""Crawls and lists that are stored, but not part of a question, change no answer to it."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree

import polars as pl
import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.errors import UnknownColumn
from catalogue.settings import Settings
from tests.support.crawls import crawl_of, table

OLDER, NEWER = "CC-MAIN-2018-05", "CC-MAIN-2022-33"
ROWS = 100


def _crawl(folder: Path, crawl: str, extra: pa.Array, start: datetime, **more: pa.Array) -> None:
    times = pa.array([start + timedelta(minutes=number) for number in range(ROWS)], pa.timestamp("ms", "UTC"))
    keys = [f"com,example)/{crawl.lower()}/{number:05}" for number in range(ROWS)]
    # The older one has no statistics of times, as in 2018.
    crawl_of(
        folder,
        table(keys, fetch_time=times, extra=extra, **more),
        crawl=crawl,
        write_statistics=["url_surtkey"],
        write_page_index=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    _crawl(folder, OLDER, pa.array(range(ROWS), pa.int32()), datetime(2018, 1, 20, tzinfo=UTC))
    texts = pa.array([f"text {number}" for number in range(ROWS)])
    _crawl(folder, NEWER, texts, datetime(2022, 8, 10, tzinfo=UTC), other=pa.array(range(ROWS), pa.int64()))
    return folder


@pytest.fixture(scope="module")
def states(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Catalogue]]:
    """Catalogues with the older crawl, and with both crawls."""
    folder, settings = tmp_path_factory.mktemp("states"), Settings(source=str(source))
    with ExitStack() as stack:
        one, both = (stack.enter_context(catalogue.open(folder / name, settings=settings)) for name in ("one", "both"))
        one.harvest(OLDER)
        both.harvest([OLDER, NEWER])
        yield [one, both]


@pytest.mark.parametrize(
    "ask",
    [
        lambda cat: cat.captures("*", crawls=OLDER, columns=["extra"]).to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, columns="*").to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, where="extra < '10'", columns=["url"]).to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, where="extra > 20", unique="extra").count(),
        lambda cat: cat.sample(cat.captures("*", crawls=OLDER, columns=["extra"]), 5, per="extra").to_arrow(),
        lambda cat: cat.scan("*", crawls=OLDER).filter(pl.col("extra") > 20).collect().to_arrow(),
    ],
    ids=["column", "every column", "text", "unique", "sample", "scan"],
)
def test_columns_are_those_of_the_crawls_of_the_question(
    states: list[Catalogue], ask: Callable[[Catalogue], object]
) -> None:
    one, both = map(ask, states)
    assert one == both


def test_columns_of_other_crawls_are_unknown(states: list[Catalogue]) -> None:
    for cat in states:
        with pytest.raises(UnknownColumn, match="there is no column 'other'"):
            cat.captures("*", crawls=OLDER, columns=["other"])


def test_scan_of_some_crawls_has_the_types_of_all(states: list[Catalogue]) -> None:
    _, both = states
    frame = both.scan("*", crawls=[OLDER, NEWER]).filter(pl.col("crawl") == OLDER, pl.col("extra") == "7")
    assert frame.select("extra", "other").collect().rows() == [("7", None)]


def test_stored_list_of_crawls_chooses_no_captures_of_named_ones(source: Path, tmp_path: Path) -> None:
    folder, answers = copytree(source, tmp_path / "source"), list[tuple[int, pa.Table]]()
    for times in (None, ("2018-01-09", "2018-01-29"), ("1999-01-09", "1999-01-29")):
        if times:
            (folder / COLLINFO).write_text(json.dumps([{"id": OLDER, "from": times[0], "to": times[1]}]))
        with catalogue.open(tmp_path / f"{len(answers)}", settings=Settings(source=str(folder))) as cat:
            cat.harvest([OLDER, NEWER])
            every, later = (
                cat.captures("*", crawls=[OLDER, NEWER], from_=year, columns=["url"]) for year in ("2018", "2022")
            )
            answers.append((every.count(), cat.sample(later, 5).to_arrow()))
    assert answers[0][0] == 2 * ROWS
    assert answers[0] == answers[1] == answers[2]
