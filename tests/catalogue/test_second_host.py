"""Questions to two hosts of the same files have the answers of one, whatever one of them does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

from catalogue.check.receipt import read_receipt
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.demo import Miniature
from catalogue.errors import CatalogueError
from catalogue.harvest.harvest import harvest
from catalogue.settings import Host
from tests.conftest import once
from tests.support import canaries
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command, Ran
from tests.support.faults import FaultServer, Kind, Script, always
from tests.support.miniatures import NEWEST, OLD
from tests.support.second_hosts import SIGNED, SecondHost, second_host
from tests.support.sources import quick

QUESTION: dict[str, Any] = {"patterns": "*.com", "crawls": NEWEST, "subsets": "all", "columns": "url, fetch_time"}
INDEXES = ("columnar", "cdx")


@contextmanager
def both(folder: Path, script: Script | None = None, **second: Any) -> Iterator[tuple[FaultServer, SecondHost]]:
    with FaultServer(folder, script=script) as server, second_host(folder, **second) as other:
        yield server, other


@pytest.fixture(scope="module")
def answers(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    def make(folder: Path) -> dict[str, pa.Table]:
        with catalogue_in(folder, miniature.folder) as cat:
            cat.harvest(NEWEST, subsets="all", index="both")
            return {index: cat.captures(**QUESTION, index=index).to_arrow() for index in INDEXES}

    return once(tmp_path_factory, "answers of one host", make)


def ask(hosts: tuple[Host, ...], folder: Path, index: str) -> tuple[pa.Table, int]:
    """Return the answer of a catalogue that knows nothing, and its requests."""
    with catalogue_in(folder, hosts[0].address, hosts=hosts, patience=60.0) as cat:
        if index == "columnar":
            harvest(cat.session, NEWEST, SUBSETS)  # without the metadata database, which takes most of the time
        return cat.captures(**QUESTION, index=index).to_arrow(), cat.requests


@pytest.mark.parametrize("index", INDEXES)
def test_answers_do_not_depend_on_the_host(
    index: str, miniature: Miniature, answers: dict[str, pa.Table], tmp_path: Path
) -> None:
    with both(miniature.folder) as (server, other):
        first, second = Host("first", server.url), other.rules
        # The preferred host may have one request at once, so that the other one is needed.
        pairs = (replace(first, rate=0.4), second), (replace(second, rate=0.4), first)
        for number, hosts in enumerate((*pairs, (first,), (second,))):
            rows, _ = ask(hosts, tmp_path / f"{number}", index)
            assert rows.equals(answers[index])
            asked = (server.requests > 0, other.requests > 0)
            assert asked == (hosts != (second,), hosts != (first,))
            server.reset()
            other.redirecting.reset()
            other.signed.reset()


@pytest.fixture(scope="module")
def least(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Requests of the question to one healthy host; one that redirects gets as many for files."""

    def make(folder: Path) -> dict[str, int]:
        found = {}
        for index in INDEXES:
            with both(miniature.folder) as (server, other):
                _, found[index] = ask((Host("first", server.url),), folder / index, index)
                _, requests = ask((other.rules,), folder / f"{index} by the other", index)
                assert requests - other.redirecting.requests == found[index]
        return found

    return once(tmp_path_factory, "least requests", make)


KINDS = [
    *(Kind.CUT_RST, Kind.DISCONNECT, Kind.CHUNKED_CUT, Kind.SHORT_RANGE, Kind.WHOLE_FILE, Kind.HTML_206, Kind.BLOCKED),
    *(Kind.SLOW_DOWN, Kind.QUOTA, Kind.DENIED, Kind.NOT_FOUND, Kind.REDIRECT_AWAY, Kind.CHANGED_ETAG, Kind.NO_ETAG),
    *(Kind.FLIPPED_BIT, Kind.OTHER_OBJECT, Kind.EMPTY),
]
"""``tests/source/test_several_hosts.py`` has all kinds."""
UNSEEN = {Kind.FLIPPED_BIT, Kind.OTHER_OBJECT, Kind.CHANGED_ETAG, Kind.EMPTY}
"""Faults that a host makes without being found out by HTTP, or that look as if the file had changed."""


@pytest.mark.in_part(5)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("faulty", ["first", "second"])
def test_wrong_host_changes_no_row_and_costs_two_requests(
    faulty: str,
    index: str,
    kind: Kind,
    miniature: Miniature,
    answers: dict[str, pa.Table],
    least: dict[str, int],
    tmp_path: Path,
) -> None:
    """A redirect is not counted: there is one for each file."""
    fault = always(quick(kind, retry_after=600, hold=0.05, interval=0.01))
    given: dict[str, Any] = {"script": fault} if faulty == "first" else {"faults": fault}
    with both(miniature.folder, **given) as (server, other):
        hosts = (Host("first", server.url), other.rules)
        try:
            rows, requests = ask(hosts[:: 1 if faulty == "first" else -1], tmp_path, index)
        except CatalogueError:
            assert kind in UNSEEN  # checks of footers, pages or blocks have found it
        else:
            assert rows.equals(answers[index])
            assert kind in UNSEEN or requests - other.redirecting.requests <= least[index] + 2


def command(folder: Path, server: FaultServer, other: SecondHost, source: str = "first,second") -> Command:
    """Return the command line of a user whose ``config.toml`` has both hosts."""
    config = folder / ".config/catalogue/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[hosts.first]\naddress = "{server.url}"\nrate = 2\n\n'
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
        query = f"query *.com --crawl {NEWEST} --subset all --yes --trace -v --receipt a.receipt".split()
        ran += [run(*query, "-o", "a.jsonl"), run("verify", "a.receipt", "--read-source")]
        assert [each.status for each in ran] == [0, 0, 0], ran
        assert {each.source for each in read_receipt(tmp_path / "a.receipt").reads} == {server.url, other.rules.address}
        assert "Signature" not in "".join(each.out + each.err for each in ran)
        stored = run("sql", "SELECT source, count(*) FROM files GROUP BY ALL ORDER BY ALL", "--format", "csv")
        assert stored.out.count("http://") == 2, stored
        old = run("harvest", "--crawl", OLD)  # which only the first host may have
        assert old.status == 0, old.err
        assert not [each for each in other.log() if OLD in each.path]
        again = run(*query, "-o", "b.jsonl")
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
        assert again.status == 0
    assert not canaries.kept_in(tmp_path)


def test_check_compares_the_footers_of_both_hosts(miniature: Miniature, tmp_path: Path) -> None:
    mirror = Path(copytree(miniature.folder, tmp_path / "mirror"))
    with FaultServer(miniature.folder) as server, second_host(mirror) as other:
        run = command(tmp_path, server, other)
        assert run("harvest", "--crawl", NEWEST).status == 0
        same = run("check", "--read-subset", "1/1")
        assert (same.status, "source: 3 of 3 files equal; 9 requests" in same.err) == (0, True), same
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
    with both(miniature.folder) as (server, other):
        run = command(tmp_path, server, other)
        assert run("harvest", "--crawl", NEWEST, "--source", "second").status == 0
        alone = run("query", "*.com", "--yes", "--source", "first")
        assert (alone.status, bool(alone.out)) == (0, True), alone
        assert not [each for each in server.settle() if "if-match" in each.headers]
