"""A few commands whose disk fails or loses power, and that are killed; ``python -m tests.slow commands`` runs more."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.slow.commands import WRITERS, World, cut_power, fail, kill, world
from tests.slow.disk import Call, DiskFault, Image, full, missing_tools

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=str(missing_tools()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("disk")) as found:
        yield found


def test_full_disk_leaves_the_folder_unchanged(made: World) -> None:
    writer = WRITERS["query x.jsonl"]
    made.state(writer.before).write(made.work)
    ran, entries = made.run(writer, full(1))
    assert ran.status == 74
    assert not [entry for entry in entries if entry.needs_space and not entry.error]
    assert Image.of(made.work) == made.state(writer.before)


def test_check_takes_no_full_disk_for_damage(made: World) -> None:
    writer = WRITERS["check"]
    writes = (e.number for e in made.result(writer).entries if e.needs_space and ".duckdb.new/" in e.path)
    made.state(writer.before).write(made.work)
    ran, _ = made.run(writer, full(max(writes)))
    assert (ran.status, "make room" in ran.err) == (74, True), ran


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", ["harvest", "fetch f.warc.gz", "export ducklake"])
def test_killed_commands_lose_nothing(made: World, name: str) -> None:
    kill(made, WRITERS[name], Random(name))


@pytest.mark.parametrize("name", ["harvest blocks", "pull", "export snapshot"])
def test_commands_killed_before_a_deletion_leave_no_temporary_file(made: World, name: str) -> None:
    writer = WRITERS[name]
    for entry in made.result(writer).entries:
        if entry.call is Call.UNLINK:
            made.state(writer.before).write(made.work)
            made.run(writer, DiskFault("before", entry.number))
            made.check_again(writer)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", ["harvest pages", "query parts/", "fetch found"])
def test_disk_errors_are_reported_with_path_and_cause(made: World, name: str) -> None:
    fail(made, WRITERS[name], Random(name))


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", WRITERS)
def test_power_cuts_lose_no_synced_data(made: World, name: str) -> None:
    for number in range(2):
        cut_power(made, WRITERS[name], Random(f"{name} {number}"), again=number == 0)
