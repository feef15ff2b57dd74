"""``catalogue check --compare-indexes`` finds differences between the columnar index and the CDX index."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copytree

import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.cdx.cluster import list_path, shards_path
from catalogue.demo import Miniature
from catalogue.errors import QueryError, TooExpensive
from catalogue.formatting import Priced
from catalogue.settings import Settings
from tests.support.cdx_indexes import CdxIndex, make_index, read_index, replace_index
from tests.support.commands import Command
from tests.support.faults import FaultServer, Kind, always
from tests.support.miniatures import NEWEST, OLD
from tests.support.mirrors import copy_crawl
from tests.support.rot import STORE, flip_value

Change = Callable[[list[str], int], None]


@pytest.fixture
def cat(stored: Path, miniature: Miniature, tmp_path: Path) -> Catalogue:
    return catalogue.open(Path(copytree(stored, tmp_path / "data")), settings=Settings(source=str(miniature.folder)))


@pytest.fixture(scope="module")
def crawl() -> str:
    """The smallest crawl of the miniature."""
    return NEWEST


@pytest.fixture
def copied(miniature: Miniature, crawl: str, tmp_path: Path) -> Path:
    return copy_crawl(miniature.folder, crawl, tmp_path / "mirror")


@pytest.fixture(scope="module")
def stored(miniature: Miniature, crawl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which the crawl is harvested; to be copied."""
    data = tmp_path_factory.mktemp("stored") / "data"
    with catalogue.open(data, settings=Settings(source=str(miniature.folder))) as cat:
        cat.harvest(crawl, subsets="all")
    return data


@pytest.fixture
def command(stored: Path, copied: Path, tmp_path: Path) -> Command:
    """The command line where the crawl is harvested, with the copy as its source."""
    return Command(copytree(stored, tmp_path / "data"), str(copied), tmp_path)


def harvested(copied: Path, crawl: str, home: Path) -> Command:
    command = Command(home / "data", str(copied), home)
    command("harvest", "--crawl", crawl, "--subset", "all")
    return command


def lines_of(index: CdxIndex) -> list[str]:
    return [line.decode().removesuffix("\n") for line in index.lines]


def test_equal_indexes_have_no_findings(both_data: Path, whole_mirror: Path, tmp_path: Path) -> None:
    """In every era."""
    with catalogue.open(copytree(both_data, tmp_path / "data"), settings=Settings(source=str(whole_mirror))) as cat:
        crawls = cat.session.metadata().crawls
        done = cat.check(compare_indexes=True, read_subset="12%", seed=1)
        assert (done.findings, done.notes, done.complete) == ([], [], True)
        assert done.intervals >= len(crawls)
        assert f"{done.rows:,} rows compared in {done.intervals} intervals of keys" in str(done)


def changed(lines: list[str], place: int) -> None:
    start, _, rest = lines[place].partition(" {")
    lines[place] = f"{start} {json.dumps(json.loads('{' + rest) | {'digest': 'CHANGED'})}"


def moved(lines: list[str], place: int) -> None:
    start, _, rest = lines[place].partition(" {")
    lines[place] = f"{start} {json.dumps(json.loads('{' + rest) | {'offset': '123456789', 'length': '7'})}"


def added(lines: list[str], place: int) -> None:
    start, _, rest = lines[place].partition(" {")
    extra = json.loads("{" + rest) | {"offset": "123456789"}
    lines.insert(place + 1, f"{start} {json.dumps(extra)}")


def repeated(lines: list[str], place: int) -> None:
    lines.insert(place + 1, lines[place])


def removed(lines: list[str], place: int) -> None:
    del lines[place]


CHANGES: list[tuple[Change, str]] = [
    (removed, "missing in the CDX index: the capture of "),
    (changed, "content_digest is '"),
    (moved, " in the columnar index and 123456789 in the CDX index; warc_record_length is"),
    (added, "missing in the columnar index: the capture of "),
    (repeated, "missing in the columnar index: the capture of "),
]


def test_each_difference_is_a_finding(command: Command, copied: Path, crawl: str) -> None:
    """In the first and last line of the index and between them."""
    lines = lines_of(read_index(copied, crawl))
    places = [0, 311, 734, 1200, len(lines) - 1]
    expected = [(lines[place], message) for place, (_, message) in zip(places, CHANGES, strict=True)]
    for place, (change, _) in reversed([*zip(places, CHANGES, strict=True)]):
        change(lines, place)
    replace_index(copied, make_index(crawl, lines))
    words = ["check", "--compare-indexes", "--read-subset", "100%"]
    reported = command(*words, "--json")
    findings = reported.json()["findings"]
    assert (reported.status, reported.json()["ok"], reported.json()["next"]) == (1, False, [])
    printed = []
    for finding, (line, message) in zip(findings, expected, strict=True):
        key, subset = line.split(" ")[0], line.split("/segments/")[1].split("/")[1]
        found = (finding["kind"], finding["crawl"], finding["subset"], finding["key"])
        assert found == ("difference", crawl, subset, key)
        assert message in finding["what"]
        printed.append(f"difference: {crawl} {subset} {key}: {finding['what']}")
    ran = command(*words)
    assert (ran.status, ran.out.splitlines()) == (1, printed)
    assert "5 findings" in ran.err


def test_missing_media_type_is_unk_or_null(command: Command, copied: Path, crawl: str) -> None:
    lines = lines_of(read_index(copied, crawl))
    without = [number for number, line in enumerate(lines) if '"mime": "unk"' in line or '"mime": ' not in line]
    for number in without:
        start, _, rest = lines[number].partition(" {")
        fields = json.loads("{" + rest)
        fields = fields | {"mime": "unk"} if "mime" not in fields else {k: v for k, v in fields.items() if k != "mime"}
        lines[number] = f"{start} {json.dumps(fields)}"
    replace_index(copied, make_index(crawl, lines))
    assert without
    assert command("check", "--compare-indexes", "--read-subset", "100%").status == 0


def test_columns_that_files_lack_are_not_compared(miniature: Miniature, tmp_path: Path) -> None:
    copied = copy_crawl(miniature.folder, OLD, tmp_path / "mirror")
    lines = lines_of(read_index(copied, OLD))
    assert not any('"languages"' in line for line in lines)
    replace_index(copied, make_index(OLD, [f'{line[:-1]}, "languages": "eng"}}' for line in lines]))
    reported = harvested(copied, OLD, tmp_path)("check", "--compare-indexes", "--read-subset", "30%", "--json").json()
    assert reported["findings"] == []
    assert reported["rows"] > 1_000


def test_ends_after_many_differences(command: Command, copied: Path, crawl: str) -> None:
    lines = lines_of(read_index(copied, crawl))
    for place in range(len(lines)):
        changed(lines, place)
    replace_index(copied, make_index(crawl, lines))
    reported = command("check", "--compare-indexes", "--read-subset", "100%", "--json").json()
    assert len(reported["findings"]) == 100
    assert reported["notes"] == [f"the comparison of {crawl} ended after 100 differences"]
    assert reported["rows"] < len(lines)


def test_subsets_without_all_files_are_not_compared(copied: Path, crawl: str, tmp_path: Path) -> None:
    gone = sorted(copied.glob("cc-index/table/cc-main/warc/crawl=*/subset=warc/*.parquet"))[1]
    gone.unlink()
    command = harvested(copied, crawl, tmp_path)
    ran = command("check", "--compare-indexes", "--read-subset", "1B")
    note = f"warc of {crawl} cannot be compared until all files are harvested; run: catalogue harvest --crawl {crawl}"
    assert (ran.status, ran.out) == (0, "")
    assert note in ran.err
    assert "no defects" in ran.err
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in copied.rglob("*.parquet") if "=warc" not in str(path))
    reported = command("check", "--compare-indexes", "--read-subset", "100%", "--json").json()
    assert (reported["rows"], reported["findings"]) == (rows, [])


def test_nothing_to_compare_is_status_1(copied: Path, crawl: str, tmp_path: Path) -> None:
    for path in copied.glob("cc-index/table/cc-main/warc/crawl=*/subset=*/*-00000-*.parquet"):
        path.unlink()
    with FaultServer(copied) as server:
        command = replace(harvested(copied, crawl, tmp_path), source=server.url)
        ran = command("check", "--compare-indexes")
        assert ran.status == 1
        assert f"warc, crawldiagnostics, robotstxt of {crawl}" in ran.err or f"robotstxt, warc of {crawl}" in ran.err
        assert "no rows of the indexes were compared" in ran.err
        assert not server.log


@pytest.mark.parametrize("lost", [list_path, shards_path])
def test_crawl_without_cdx_index_is_noted(
    command: Command, copied: Path, crawl: str, lost: Callable[[str], str]
) -> None:
    (copied / lost(crawl)).unlink()
    ran = command("check", "--compare-indexes")
    assert (ran.status, ran.out) == (1, "")
    assert f"the source has no CDX index of {crawl}\nno rows of the indexes were compared\nno defects" in ran.err


def test_other_crawls_are_compared_all_the_same(miniature: Miniature, copied: Path, crawl: str, tmp_path: Path) -> None:
    for other in miniature.crawls:
        if other != crawl:
            copy_crawl(miniature.folder, other, copied)
    (copied / shards_path(crawl)).unlink()
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(copied))) as cat:
        cat.harvest("all", subsets="all")
        done = cat.check(compare_indexes=True, read_subset="1B")
    assert (done.findings, done.notes, done.complete) == ([], [f"the source has no CDX index of {crawl}"], True)
    assert done.intervals == len(miniature.crawls) - 1


def test_request_count_of_one_interval(command: Command, copied: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(copied) as server:
        served = replace(command, source=server.url)
        words = ["check", "--compare-indexes", "--read-subset", "1B", "--seed", "5"]
        ran = served(*words)
        assert ran.status == 0
        seen = [(exchange.path, exchange.range_header) for exchange in server.log]
        assert len(seen) == len({*seen})
        paths = [path for path, _ in seen]
        assert paths[:2] == [list_path(crawl), shards_path(crawl)]
        announced = int(ran.err.split("1 interval of keys in 1 crawl: ")[1].split(" request")[0])
        assert len(seen) <= 2 + announced
        assert f"(--seed 5); {len(seen)} requests" in ran.err
        server.reset()
        again = served(*words, "--json", CATALOGUE_CACHE=str(tmp_path / "another")).json()
        assert (again["intervals"], again["seed"], again["requests"]) == (1, 5, len(server.log))
        assert {path for path, _ in seen} == {exchange.path for exchange in server.log}  # page indexes are stored now


def test_share_selects_intervals(cat: Catalogue, crawl: str) -> None:
    def compared(share: str, seed: int | None = None) -> tuple[int, int]:
        done = cat.check(crawl, compare_indexes=True, read_subset=share, seed=seed)
        assert not done.findings
        assert done.seed == seed
        return done.intervals, done.rows

    with cat:
        every = cat.check(crawl, compare_indexes=True, read_subset="100%")
        rows = dict(cat.sql("SELECT crawl, sum(num_rows)::BIGINT FROM files GROUP BY crawl").fetchall())
        assert every.rows == rows[crawl]
        parts = [compared(f"{part}/2") for part in (1, 2)]
        assert tuple(map(sum, zip(*parts, strict=True))) == (every.intervals, every.rows)
        half = compared("50%", 1)
        assert half == compared("50%", 1)
        assert half[0] == round(every.intervals / 2)
        assert len({compared("1B", seed) for seed in range(3)}) > 1


def test_asks_before_large_comparisons(command: Command, copied: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(copied) as server:
        served = replace(command, source=server.url)
        ran = served("check", "--compare-indexes", "--max-requests", "1")
        assert (ran.status, ran.out) == (2, "")
        assert "choose fewer crawls or a smaller --read-subset, or add --yes" in ran.err
        assert {exchange.path for exchange in server.log} == {shards_path(crawl), list_path(crawl)}
        assert served("check", "--compare-indexes", "--max-requests", "1", "--yes").status == 0
    costs = []

    def refuse(cost: Priced) -> None:
        costs.append((cost.requests, cost.bytes, cost.seconds))
        raise TooExpensive("no")

    with catalogue.open(tmp_path / "data", settings=Settings(source=str(copied))) as cat:
        with pytest.raises(TooExpensive, match="no"):
            cat.check(compare_indexes=True, approve=refuse)
        assert len(costs) == 1
        assert all(part > 0 for part in costs[0])


def test_invalid_or_changed_files_are_findings(command: Command, copied: Path, crawl: str) -> None:
    words = ["check", "--compare-indexes", "--read-subset", "100%", "--json"]
    path = copied / list_path(crawl)
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    (finding,) = command(*words).json()["findings"]
    assert (finding["kind"], finding["crawl"], finding["key"], finding["next"]) == ("source", crawl, "", "")
    assert list_path(crawl) in finding["what"]
    path.write_bytes(content)
    shard = next(copied.glob("cc-index/collections/*/indexes/*.gz"))
    blocks = shard.read_bytes()
    shard.write_bytes(bytes(len(blocks)))
    (finding,) = command(*words).json()["findings"]
    assert shard.name in finding["what"]
    shard.write_bytes(blocks)
    file = next(copied.rglob("subset=warc/*.parquet"))
    file.write_bytes(file.read_bytes() + b"\0")
    reported = command(*words).json()
    (finding,) = reported["findings"]
    assert file.name in finding["what"]
    assert reported["next"] == [f"catalogue harvest --crawl {crawl} --refresh"]


def test_unreachable_source_is_status_75(command: Command, copied: Path) -> None:
    with FaultServer(copied, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = replace(command, source=down.url)("check", "--compare-indexes")
    assert (ran.status, ran.out) == (75, "")
    assert "no rows of the indexes were compared" in ran.err


def test_store_with_defects_is_not_compared(command: Command, copied: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(copied) as server:
        served = replace(command, source=server.url)
        rotten = str(next(copied.rglob("subset=robotstxt/*.parquet")).relative_to(copied))
        flip_value(tmp_path / "data" / STORE, "files", rotten, Random(1))
        ran = served("check", "--compare-indexes")
        assert ran.status == 1
        assert "the indexes were not compared, because of the findings" in ran.err
        assert not server.log
        ran = served("check", "--compare-indexes", "--repair")
        assert ran.status == 1
        assert f"robotstxt of {crawl} cannot be compared until all files are harvested" in ran.err
        assert "intervals of keys compared" in ran.err


def test_other_datasets_have_no_cdx_index(cat: Catalogue, tmp_path: Path) -> None:
    with (
        cat,
        catalogue.open(tmp_path / "data", table="mine", settings=cat.session.settings) as mine,
        pytest.raises(QueryError, match="mine has no CDX index; leave out --compare-indexes"),
    ):
        mine.check(compare_indexes=True)
