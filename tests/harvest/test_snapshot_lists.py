"""Lists of blocks in snapshots: exported and pulled."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

import catalogue
from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.cluster import format_blocks, list_path, parse_blocks
from catalogue.demo import LoopbackServer
from catalogue.errors import StoreDamaged
from catalogue.harvest.snapshot import MANIFEST
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from catalogue.store.stored_lists import LISTS, list_file
from tests.support.amounts import in_soak
from tests.support.block_lists import write_list
from tests.support.commands import Command
from tests.support.fault_kinds import Fault, Kind, Request
from tests.support.faults import FaultServer
from tests.support.snapshot_lists import (
    CRAWL,
    OTHER,
    exported,
    mine,
    mirror,
    other_lines,
    place,
    published,
    settings,
    some_lines,
    theirs,
)
from tests.support.snapshots import files_of, read_rows
from tests.support.warm import Forked

__all__ = ["exported", "mine", "mirror", "place", "settings", "theirs"]  # fixtures


# ---- the same list ----


def test_pulled_list_is_the_exported_one(mine: Catalogue, theirs: Catalogue, mirror: Path, tmp_path: Path) -> None:
    place = tmp_path / "mine.snapshot"
    mine.export_snapshot(place)
    (listed,) = files_of(place).values()
    assert (listed.crawl, listed.footers, listed.blocks) == (CRAWL, 0, 9000)
    rows = read_rows(published(place))
    assert b"".join(row.stored.data for row in rows) == some_lines()
    assert {(row.table, row.key, row.stored.size) for row in rows} == {("blocks", list_path(CRAWL), len(some_lines()))}
    with LoopbackServer(place) as server:
        pulled = theirs.pull(server.url)
        assert [exchange.path for exchange in server.log] == [MANIFEST, listed.name]
    assert (pulled.crawls, pulled.lists, pulled.files, pulled.compared) == ((CRAWL,), 1, 0, 1)
    assert (pulled.unchanged, pulled.missing) == (0, ())
    assert theirs.requests == 1 + 3  # the number of shards, and parts
    one, other = (cat.sql("FROM blocks ORDER BY number").to_arrow_table() for cat in (mine, theirs))
    assert one.equals(other)
    assert one.num_rows == 9000
    one, other = (list_file(cat.session.store, CRAWL).read_bytes() for cat in (mine, theirs))
    assert one == other
    assert theirs.check().findings == []
    values = [cat.session.store.get("documents", LISTS + CRAWL) for cat in (mine, theirs)]
    assert values[0] == values[1]
    assert not theirs.harvest(CRAWL, index="cdx", refresh=True)[0].fetched
    assert mirror.as_uri() in str(values[0])


@in_soak
def test_pulled_lists_answer_queries(whole_mirror: Path, tmp_path: Path) -> None:
    """Of crawls with footers, with a list, and with both."""
    settings = Settings(source=str(whole_mirror), cache=tmp_path / "cache")
    with (
        catalogue.open(tmp_path / "mine", settings=settings) as mine,
        catalogue.open(tmp_path / "theirs", settings=settings) as theirs,
    ):
        with_lists = {path.parts[-3] for path in whole_mirror.glob(list_path("*"))}
        with_files = {path.name.removeprefix("crawl=") for path in whole_mirror.rglob("crawl=*")}
        both, listed, harvested = sorted(with_lists & with_files)[-3:]
        mine.harvest(both, index="both")
        mine.harvest(listed, index="cdx")
        mine.harvest(harvested)
        exported = mine.export_snapshot(tmp_path / "snapshot")
        assert (exported.lists, {*exported.crawls}) == (2, {both, listed, harvested})
        snapshot = files_of(tmp_path / "snapshot")
        assert {crawl for crawl, file in snapshot.items() if file.footers} == {both, harvested}
        assert {crawl for crawl, file in snapshot.items() if file.blocks} == {both, listed}
        pulled = theirs.pull(str(tmp_path / "snapshot"))
        assert (pulled.lists, pulled.files, pulled.missing) == (2, exported.files, ())
        assert stored_crawls(theirs.session) == stored_crawls(mine.session)
        for pattern in ("*.example.com", "example.com/*"):
            for words in ({"crawls": [both, listed], "index": "cdx"}, {"crawls": [both, harvested, listed]}):
                one, other = (cat.captures(pattern, ordered=True, **words).to_arrow() for cat in (mine, theirs))
                assert one.equals(other)
            assert len(theirs.captures(pattern, crawls=listed, index="cdx").to_arrow())
        assert theirs.pull(str(tmp_path / "snapshot")).unchanged == 3
        only = theirs.export_snapshot(tmp_path / "selected", crawls=harvested)
        assert (only.lists, only.crawls) == (0, (harvested,))
        mine.forget(listed)
        assert mine.export_snapshot(tmp_path / "snapshot", crawls=harvested).crawls == (harvested,)
        assert files_of(tmp_path / "snapshot") == snapshot
        mine.export_snapshot(tmp_path / "snapshot")
        assert {*files_of(tmp_path / "snapshot")} == {both, harvested}


def test_stored_lists_stay(mirror: Path, theirs: Catalogue, place: Path) -> None:
    write_list(mirror, other_lines())
    theirs.harvest(CRAWL, index="cdx")
    with LoopbackServer(place) as server:
        pulled = theirs.pull(server.url)
        assert (pulled.lists, pulled.unchanged) == (0, 1)
        assert [exchange.path for exchange in server.log] == [MANIFEST]
    assert theirs.sql("SELECT count(*) FROM blocks").fetchall() == [(2000,)]


def test_damaged_lists_are_replaced(theirs: Catalogue, place: Path) -> None:
    theirs.pull(str(place))
    path = list_file(theirs.session.store, CRAWL)
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    assert theirs.pull(str(place)).lists == 1
    assert path.read_bytes() == whole
    theirs.forget(CRAWL)
    assert not path.exists()
    assert theirs.pull(str(place)).lists == 1


def test_etags_of_other_sources_are_dropped(mirror: Path, mine: Catalogue, tmp_path: Path) -> None:
    place = tmp_path / "mine.snapshot"
    mine.export_snapshot(place)
    with (
        FaultServer(mirror) as server,
        catalogue.open(tmp_path / "other", settings=Settings(source=server.url, cache=tmp_path / "cache")) as other,
    ):
        other.pull(str(place))
        ours, value = (cat.session.store.get("documents", LISTS + CRAWL) for cat in (mine, other))
        assert ours
        assert value
        assert (value.source, value.etag, value.size) == (server.url, None, len(some_lines()))
        assert (value.data, value.taken) == (ours.data, ours.taken)
        ranges = [each.headers["range"] for each in server.log if each.path == list_path(CRAWL)]
    starts = [int(each.removeprefix("bytes=").partition("-")[0]) for each in ranges]
    assert len({*starts}) == 3


def test_small_lists_are_compared_completely(mirror: Path, tmp_path: Path, settings: Settings) -> None:
    write_list(mirror, make_list(2, shards=1))
    with (
        catalogue.open(tmp_path / "mine", settings=settings) as mine,
        catalogue.open(tmp_path / "theirs", settings=settings) as theirs,
    ):
        mine.harvest(CRAWL, index="cdx")
        mine.export_snapshot(tmp_path / "snapshot")
        assert theirs.pull(str(tmp_path / "snapshot")).lists == 1
        assert theirs.requests == 2


def test_formatted_lines_are_those_of_the_list() -> None:
    blocks = parse_blocks(CRAWL, some_lines())
    assert format_blocks(blocks) == some_lines()
    tail = some_lines()[some_lines().index(b"\n") + 1 :]
    assert format_blocks(parse_blocks(CRAWL, tail, start=len(some_lines()) - len(tail))) == tail
    unusual = "com,a)/\xe9?\x7f 20220807000000\tcdx-00000.gz\t0\t100\t1\n".encode()
    assert format_blocks(parse_blocks(CRAWL, unusual)) == unusual


# ---- export ----


@in_soak
def test_export_writes_only_changed_lists(mine: Catalogue, mirror: Path, place: Path) -> None:
    def inodes() -> dict[str, int]:
        return {path.stem: path.stat().st_ino for path in place.glob("crawls/*")}

    write_list(mirror, other_lines(), OTHER)
    mine.harvest(OTHER, index="cdx")
    mine.export_snapshot(place)
    before = inodes()
    mine.export_snapshot(place)
    assert inodes() == before
    write_list(mirror, make_list(1000), OTHER)
    mine.harvest(OTHER, index="cdx", refresh=True)
    mine.export_snapshot(place)
    assert inodes()[CRAWL] == before[CRAWL]
    assert {crawl: file.blocks for crawl, file in files_of(place).items()} == {CRAWL: 9000, OTHER: 1000}


def test_truncated_published_lists_are_written_again(mine: Catalogue, place: Path) -> None:
    mine.export_snapshot(place)
    whole = published(place).read_bytes()
    published(place).write_bytes(whole[:-1])
    mine.export_snapshot(place)
    assert published(place).read_bytes() == whole


def test_export_refuses_damaged_lists(mine: Catalogue, tmp_path: Path) -> None:
    path = list_file(mine.session.store, CRAWL)
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(StoreDamaged, match=f"catalogue harvest --crawl {CRAWL} --index cdx --refresh"):
        mine.export_snapshot(tmp_path / "new")
    assert files_of(tmp_path / "new") == {}


def test_export_refuses_lists_of_another_size(mine: Catalogue, tmp_path: Path) -> None:
    store = mine.session.create_store()
    value = store.get("documents", LISTS + CRAWL)
    assert value
    store.put("documents", [(LISTS + CRAWL, replace(value, size=value.size + 1))])
    with pytest.raises(StoreDamaged, match=f"bytes instead of {len(some_lines()) + 1:,}"):
        mine.export_snapshot(tmp_path / "new")


# ---- interruptions ----


def test_killed_pull_stores_nothing_and_continues(mirror: Path, place: Path, tmp_path: Path) -> None:
    started: list[Forked] = []

    def kill(request: Request) -> Fault | None:
        if started and request.path == list_path(CRAWL):
            started.pop().kill()
            return Fault(Kind.DISCONNECT)
        return None

    with FaultServer(mirror, script=kill) as server:
        command = Command(tmp_path / "data", server.url, tmp_path)
        with command.start("pull", str(place)) as process:
            started.append(process)
            process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL
        left = [path.name for path in (tmp_path / "data/blocks").iterdir()]
        assert len(left) == 1
        assert left[0].endswith(".part")
        assert command("status", "--json").json()["blocks"] == []
        ran = command("pull", str(place))
        assert ran.status == 0, ran.err
        assert "1 list of blocks added" in ran.err
    assert [path.name for path in (tmp_path / "data/blocks").iterdir()] == [f"{CRAWL}.parquet"]
    assert not (tmp_path / "data/pulling.part").exists()


def test_commands(mirror: Path, tmp_path: Path) -> None:
    place = tmp_path / "snapshot"
    mine = Command(tmp_path / "mine", str(mirror), tmp_path)
    mine("harvest", "--crawl", CRAWL, "--index", "cdx")
    ran = mine("export", "snapshot", str(place))
    assert (ran.status, ran.err) == (0, f"{place}: 0 files and 1 list of blocks of 1 crawl\n")
    made = mine("export", "snapshot", str(place), "--json").json()
    assert (made["crawls"], made["files"], made["lists"], made["complete"]) == ([CRAWL], 0, 1, True)
    theirs = replace(mine, data=tmp_path / "theirs")
    pulled = theirs("pull", str(place), "--json").json()
    assert (pulled["crawls"], pulled["files"], pulled["lists"], pulled["compared"]) == ([CRAWL], 0, 1, 1)
    assert theirs("pull", str(place)).err == "1 crawl: nothing new since the last pull\n"
    again = replace(mine, data=tmp_path / "again")("pull", str(place), "--compare", "0")
    assert "; 1 list of blocks added; 0 compared with the source" in again.err
