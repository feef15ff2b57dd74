"""Questions to two hosts of the same files have the answers of one, whatever one of them does."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from catalogue.demo import Miniature
from catalogue.errors import CatalogueError
from catalogue.receipt import read_receipt
from catalogue.settings import Host, Settings
from tests.conftest import once
from tests.support import canaries
from tests.support.commands import Command, Ran
from tests.support.faults import ALL_KINDS, SLOW, FaultServer, Kind, Script, always
from tests.support.miniatures import NEWEST, OLD
from tests.support.second_hosts import SIGNED, SecondHost, second_host
from tests.support.sources import quick

QUESTION: dict[str, Any] = {"patterns": "*.com", "crawls": NEWEST, "subsets": "all"}
INDEXES = ("columnar", "cdx")


@contextmanager
def both(
    folder: Path, script: Script | None = None, *, rate: float | None = None, **second: Any
) -> Iterator[tuple[FaultServer, SecondHost]]:
    with FaultServer(folder, script=script) as server, second_host(folder, **second) as other:
        yield server, other


def settings_of(folder: Path, *hosts: Host) -> Settings:
    return Settings(source=hosts[0].address, hosts=hosts, cache=folder, patience=60.0)


@pytest.fixture(scope="module")
def answers(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    def make(folder: Path) -> dict[str, pa.Table]:
        with catalogue.open(folder / "data", settings=Settings(source=str(miniature.folder), cache=folder)) as cat:
            cat.harvest(NEWEST, subsets="all", index="both")
            return {index: cat.captures(**QUESTION, index=index).to_arrow() for index in INDEXES}

    return once(tmp_path_factory, "answers of one host", make)


def ask(hosts: tuple[Host, ...], folder: Path, index: str, **options: Any) -> tuple[pa.Table, int]:
    """Return the answer of a catalogue that knows nothing, and its requests."""
    with catalogue.open(folder / "data", settings=settings_of(folder / "cache", *hosts)) as cat:
        if index == "columnar":
            cat.harvest(NEWEST, subsets="all", **options)
        return cat.captures(**QUESTION, index=index).to_arrow(), cat.requests


@pytest.mark.parametrize("index", INDEXES)
def test_answers_do_not_depend_on_the_host(
    index: str, miniature: Miniature, answers: dict[str, pa.Table], tmp_path: Path
) -> None:
    with both(miniature.folder) as (server, other):
        # Both are needed: the burst is shorter than the question.
        hosts = (Host("first", server.url, rate=20.0), Host(**_fields(other.rules) | {"rate": 20.0}))
        for number, each in enumerate((hosts, hosts[::-1], hosts[:1], hosts[1:])):
            rows, _ = ask(each, tmp_path / f"{number}", index)
            assert rows.equals(answers[index])
            asked = (server.requests > 0, other.requests > 0)
            assert asked == ((True, True) if len(each) > 1 else (each == hosts[:1], each == hosts[1:]))
            server.reset()
            other.redirecting.reset()
            other.signed.reset()


def _fields(host: Host) -> dict[str, Any]:
    return {name: getattr(host, name) for name in Host.__dataclass_fields__}


@pytest.fixture(scope="module")
def least(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], int]:
    """Requests of the question to one healthy host."""

    def make(folder: Path) -> dict[tuple[str, str], int]:
        with both(miniature.folder) as (server, other):
            hosts = {"first": Host("first", server.url), "second": other.rules}
            return {
                (name, index): ask((host,), folder / name / index, index)[1]
                for name, host in hosts.items()
                for index in INDEXES
            }

    return once(tmp_path_factory, "least requests", make)


UNSEEN = {Kind.FLIPPED_BIT, Kind.OTHER_OBJECT, Kind.CHANGED_ETAG, Kind.EMPTY}
"""Faults that a host makes without being found out by HTTP, or that look as if the file had changed."""


@pytest.mark.parametrize("kind", sorted({*ALL_KINDS} - SLOW, key=str), ids=lambda kind: kind.value)
@pytest.mark.parametrize("index", INDEXES)
def test_wrong_host_changes_no_row_and_costs_two_requests(
    index: str, kind: Kind, miniature: Miniature, answers: dict[str, pa.Table], least: dict[Any, int], tmp_path: Path
) -> None:
    fault = always(quick(kind, retry_after=600, hold=0.05, interval=0.01))
    for faulty in ("first", "second"):
        given: dict[str, Any] = {"script": fault} if faulty == "first" else {"faults": fault}
        with both(miniature.folder, **given) as (server, other):
            hosts = (Host("first", server.url), other.rules)
            try:
                rows, requests = ask(hosts[:: 1 if faulty == "first" else -1], tmp_path / faulty, index)
            except CatalogueError:
                assert kind in UNSEEN  # checks of footers, pages or blocks have found it
            else:
                assert rows.equals(answers[index])
                healthy = "second" if faulty == "first" else "first"
                assert kind in UNSEEN or requests <= least[healthy, index] + 2


def test_host_breaks_in_the_middle_of_a_question(
    miniature: Miniature, answers: dict[str, pa.Table], least: dict[Any, int], tmp_path: Path
) -> None:
    for number, count in enumerate((1, 3, 6)):
        with both(miniature.folder, lambda each, n=count: None if each.number < n else quick(Kind.CUT_RST)) as (  # type: ignore[misc]
            server,
            other,
        ):
            rows, requests = ask((Host("first", server.url), other.rules), tmp_path / f"{number}", "cdx")
            assert rows.equals(answers["cdx"])
            assert requests <= least["second", "cdx"] + count + 2


# ---- what is stored ----


def command(folder: Path, server: FaultServer, other: SecondHost, source: str = "first,second") -> Command:
    """Return the command line of a user whose ``config.toml`` has both hosts."""
    config = folder / ".config/catalogue/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[hosts.first]\naddress = "{server.url}"\nrate = 20\n\n'
        f'[hosts.second]\naddress = "{other.rules.address}"\nrate = 20\nquota = [3000, 300]\n'
        f'redirects = ["{SIGNED}"]\nfirst_crawl = 2026\n'
    )
    return Command(folder / "data", source, folder)


def test_commands_use_both_hosts_and_store_no_address(miniature: Miniature, tmp_path: Path) -> None:
    with both(miniature.folder) as (server, other):
        run = command(tmp_path, server, other)
        ran: list[Ran] = [run("harvest", "--crawl", NEWEST, "--subset", "all", "--pages", "--trace")]
        assert ran[0].status == 0, ran[0].err
        assert "redirected" in ran[0].err
        query = ("query", "*.com", "--subset", "all", "--yes", "--trace", "-v", "--receipt", "a.receipt")
        ran += [run(*query, "-o", "a.jsonl"), run("verify", "a.receipt", "--read-source")]
        assert [each.status for each in ran] == [0, 0, 0], ran
        assert {each.source for each in read_receipt(tmp_path / "a.receipt").reads} == {server.url, other.rules.address}
        assert "Signature" not in "".join(each.out + each.err for each in ran)
        stored = run("sql", "SELECT source, count(*) FROM files GROUP BY ALL ORDER BY ALL", "--format", "csv")
        assert stored.out.count("http://") == 2, stored
        old = run("harvest", "--crawl", OLD)  # which only the first host may have
        assert old.status == 0, old.err
        assert not [each for each in other.log() if OLD in each.path]
        before = other.requests, server.requests
        again = run(*query, "-o", "b.jsonl")
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
        assert again.status == 0
    assert before
    assert not canaries.kept_in(tmp_path)


def test_check_compares_the_footers_of_both_hosts(miniature: Miniature, tmp_path: Path) -> None:
    mirror = Path(copytree(miniature.folder, tmp_path / "mirror"))
    with FaultServer(miniature.folder) as server, second_host(mirror) as other:
        run = command(tmp_path, server, other)
        assert run("harvest", "--crawl", NEWEST).status == 0
        same = run("check", "--read-subset", "1/1")
        assert (same.status, same.err) == (0, ""), same
        changed, absent, *_ = sorted(mirror.rglob(f"crawl={NEWEST}/subset=warc/*.parquet"))
        content = bytearray(changed.read_bytes())
        content[-30] ^= 1
        changed.write_bytes(content)
        absent.unlink()
        other.redirecting.reset()
        ran = run("check", "--read-subset", "1/1")
    assert ran.status == 1
    assert f"{other.rules.address} has another footer" in ran.out or "has changed at the source" in ran.out
    assert changed.name in ran.out


def test_read_only_use_of_one_host_later(miniature: Miniature, tmp_path: Path) -> None:
    """Footers of the second host are used with the first host alone, without its ETags."""
    with ExitStack() as stack:
        server, other = stack.enter_context(both(miniature.folder))
        run = command(tmp_path, server, other)
        assert run("harvest", "--crawl", NEWEST, "--source", "second").status == 0
        alone = run("query", "*.com", "--yes", "--source", "first")
        assert (alone.status, bool(alone.out)) == (0, True), alone
        assert not [each for each in server.settle() if "if-match" in each.headers]
