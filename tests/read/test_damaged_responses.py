"""Damaged responses are requested again, and stay neither in the cache nor in the store."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.errors import FileChanged, FormatError
from catalogue.session import Session
from catalogue.settings import Settings
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.mirrors import read_footer

FILES = [("columnar", ".parquet"), ("cdx", "/cdx-00000.gz"), ("cdx", ".idx")]


@dataclass
class Damage:
    """A script that changes some or all responses for files whose path ends so."""

    end: str = "-"
    numbers: range = range(0)
    variant: int = 0
    kind: Kind = Kind.FLIPPED_BIT
    seen: int = 0

    def __call__(self, request: Request) -> Fault | None:
        if not request.path.endswith(self.end):
            return None
        self.seen += 1
        return Fault(self.kind, variant=self.variant) if self.seen - 1 in self.numbers else None


@pytest.fixture
def damage() -> Damage:
    return Damage()


@pytest.fixture
def reading(whole_mirror: Path, damage: Damage, settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    with FaultServer(whole_mirror, script=damage) as server:
        yield replace(settings, source=server.url, cache=tmp_path / "cache", bandwidth=1e4, latency=0.01)


@pytest.fixture
def data(reading: Settings, tmp_path: Path, newest: str) -> Path:
    with catalogue.open(tmp_path / "data", settings=reading) as cat:
        cat.harvest(newest)
    return tmp_path / "data"


def rows(cat: Catalogue, newest: str, index: str, pattern: str = "*.com") -> pa.Table:
    return cat.captures(pattern, crawls=newest, index=index, columns=["url_surtkey", "url"]).to_arrow()


@pytest.mark.parametrize(
    ("index", "end", "kind"), [*((*each, Kind.FLIPPED_BIT) for each in FILES), (*FILES[1], Kind.OTHER_OBJECT)]
)
def test_queries_work_again_after_damaged_responses(
    columnar: Catalogue, data: Path, reading: Settings, damage: Damage, newest: str, index: str, end: str, kind: Kind
) -> None:
    with catalogue.open(data, settings=reading) as cat:
        # Another file, sent once: the repetition has the version of the right one.
        damage.end, damage.kind, damage.numbers = end, kind, range(1000 if kind is Kind.FLIPPED_BIT else 1)
        with pytest.raises((FormatError, FileChanged)):
            rows(cat, newest, index)
        damage.numbers = range(0)
    with catalogue.open(data, settings=reading) as cat:
        assert rows(cat, newest, index).equals(rows(columnar, newest, index))


@pytest.mark.parametrize(("index", "end"), FILES[:2])
def test_one_damaged_response_is_requested_again(
    columnar: Catalogue, data: Path, reading: Settings, damage: Damage, newest: str, index: str, end: str
) -> None:
    """Any of pages, page indexes or blocks, and any byte that is used."""
    damage.end = end
    for pattern in ("*.com", "www.example.com/*"):
        expected, requests = rows(columnar, newest, index, pattern), []
        for trial in range(16):
            damage.seen, damage.numbers, damage.variant = 0, range(trial % 8, trial % 8 + 1), trial * 4001
            place = data.with_name(f"{len(pattern)} {trial}")
            with catalogue.open(copytree(data, place), settings=replace(reading, cache=place / "cache")) as cat:
                assert rows(cat, newest, index, pattern).equals(expected)
                requests.append(damage.seen)
                assert not cat.captures(pattern, crawls=newest, index=index).plan.warnings
                assert rows(cat, newest, index, pattern).equals(expected)
        assert len({*requests}) > 1


def test_damaged_page_indexes_are_not_harvested(
    whole_mirror: Path, settings: Settings, newest: str, tmp_path: Path
) -> None:
    def in_key_index(request: Request) -> Fault | None:
        """Change a bit of the index of the keys in the first response for a file."""
        if request.attempt or not request.path.endswith(".parquet"):
            return None
        data = (whole_mirror / request.path).read_bytes()
        at = read_footer(data).row_groups[0].chunks[KEY_COLUMN].column_index
        assert at
        length = min(len(data), int(request.headers["range"].removeprefix("bytes=-")))
        return Fault(Kind.FLIPPED_BIT, variant=at.start - len(data) + length - length // 2)

    with FaultServer(whole_mirror, script=in_key_index) as server:
        reading = replace(settings, source=server.url, cache=tmp_path / "cache")
        with catalogue.open(tmp_path / "data", settings=reading) as cat:
            cat.harvest(newest, pages=True)
            checked = cat.check(read_subset="100%")
    assert checked.compared
    assert not checked.findings


def test_rows_before_damaged_pages_are_returned_once(settings: Settings, tmp_path: Path) -> None:
    chance, count, damaged = random.Random(3), 200_000, set[str]()
    digests = pa.array([chance.randbytes(20).hex() for _ in range(count)])
    written = table([f"com,example)/{number:06}" for number in range(count)], content_digest=digests)
    mirror = crawl_of(tmp_path, written, row_group_size=count, write_page_checksum=True)

    def near_the_end(request: Request) -> Fault | None:
        """Change a bit of the first response for the digests."""
        first, _, last = request.headers.get("range", "").removeprefix("bytes=").rpartition("-")
        if not first or int(last) - int(first) < count * 20 or request.path in damaged:
            return None
        damaged.add(request.path)
        return Fault(Kind.FLIPPED_BIT, variant=(int(last) - int(first)) // 2 - 100)

    messages: list[str] = []
    with FaultServer(mirror, script=near_the_end) as server:
        reading = replace(settings, source=server.url, cache=tmp_path / "cache")
        with Catalogue(Session(tmp_path / "data", reading, notify=messages.append)) as cat:
            cat.harvest(CRAWL)
            found = cat.captures("*", crawls=CRAWL, index="columnar", columns=["content_digest"]).to_arrow()
    assert found.column("content_digest").equals(written.column("content_digest"))
    assert [message for message in messages if message.endswith("; it is read again")]
