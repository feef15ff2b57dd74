"""The next steps of ``catalogue status``, and the commands in messages."""

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.harvest.next_steps import steps
from catalogue.surt.pattern import Keys
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.miniatures import OLD

NEW, OLDER = "CC-MAIN-2022-05", "CC-MAIN-2021-49"


def stored(crawl: str = NEW, subset: str = "warc", listed: int | None = 3, **others: int) -> dict[str, Any]:
    counts = {"files_harvested": 3, "files_failed": 0, "without_bounds": 0, "requested": True}
    return {"crawl": crawl, "subset": subset, "files_listed": listed, **counts, **others}


@pytest.mark.parametrize(
    ("coverage", "listed", "days", "price", "commands"),
    [
        ([], [], 0, "", ["catalogue harvest --crawl latest"]),
        ([], ["CC-MAIN-2012", OLDER], 0, "", [f"catalogue harvest --crawl {OLDER}"]),
        ([stored(files_harvested=0, requested=False)], [NEW], 0, "", [f"catalogue harvest --crawl {NEW}"]),
        ([stored()], [NEW, OLDER], 0, "", []),
        ([stored(), stored(subset="robotstxt", files_harvested=0, requested=False)], [], 0, "", []),
        ([stored(OLDER)], [NEW, OLDER], 0, "", [f"catalogue harvest --crawl {NEW}"]),
        ([stored(OLDER)], [], 0, "", []),
        ([stored()], [NEW], 60, "", ["catalogue crawls"]),
        ([stored(listed=None, without_bounds=1)], [], 0, "", ["catalogue backfill --dry-run"]),
        ([stored(without_bounds=1)], [NEW], 0, "a request", ["catalogue backfill"]),
        (
            [
                stored(OLDER, files_failed=2, files_harvested=1),
                stored(subset="robotstxt", files_harvested=2),
                stored(without_bounds=2),
            ],
            ["CC-MAIN-2022-21", NEW],
            60,
            "a request",
            [
                f"catalogue harvest --crawl {NEW} --subset robotstxt",
                f"catalogue harvest --crawl {OLDER}",
                "catalogue backfill",
                "catalogue harvest --crawl CC-MAIN-2022-21",
                "catalogue crawls",
            ],
        ),
        (
            [stored("hosts", "all", files_failed=1, files_harvested=2, without_bounds=1)],
            *([], None, "a request", ["catalogue harvest --table hosts", "catalogue backfill --table hosts"]),
        ),
    ],
)
def test_proposes_next_steps(
    coverage: list[dict[str, Any]], listed: list[str], days: int | None, price: str, commands: list[str]
) -> None:
    dataset = COMMON_CRAWL if days is not None else Dataset("hosts", "host", Keys.HOST)
    found = list(steps(dataset, coverage, listed, None if days is None else timedelta(days=days), price))
    assert [step.command for step in found] == commands
    assert all(step.why for step in found)


def test_proposed_commands_work(command: Command, mirror: Path) -> None:
    """Run them until there are no more."""
    broken = {path.name for path in mirror.rglob(f"crawl={OLD}/**/*.parquet")}
    mended = False

    def script(request: Request) -> Fault | None:
        lost = not mended and request.path.rpartition("/")[2] in sorted(broken)[:1]
        return Fault(Kind.NOT_FOUND) if lost else None

    with FaultServer(mirror, script=script) as server:
        here = Command(command.data, server.url, command.home)
        assert here("harvest", "--crawl", OLD).status == 1
        mended = True
        ran: list[str] = []
        made = server.requests
        while steps := here("status", "--json").json()["next"]:
            if not ran:
                assert f"{steps[0]['why']}; run: {steps[0]['command']}\n" in here("status").out
            assert server.requests == made
            assert steps[0]["command"] not in ran
            ran.append(steps[0]["command"])
            assert here(*shlex.split(ran[-1])[1:]).status == 0
            made = server.requests
    assert ran[0] == f"catalogue harvest --crawl {OLD}"
    assert "--crawl" in ran[-1]


@pytest.mark.in_soak
def test_proposals_keep_global_options(command: Command, mirror: Path, tmp_path: Path) -> None:
    data, source = tmp_path / "a folder", str(mirror)
    elsewhere = Command(tmp_path / "nowhere", "gopher://x", command.home)
    given = ["--data", str(data), "--source", source]
    options = f"--data {shlex.quote(str(data))} --source {shlex.quote(source)}"

    def proposed(*words: str, **environment: str) -> list[str]:
        ran = elsewhere(*words, **environment)
        lines = [line for line in (ran.err + ran.out).splitlines() if "run: " in line]
        assert len(lines) == 1, ran.err
        return shlex.split(lines[0].partition("run: ")[2])[1:]

    first = proposed("query", "example.com", *given)
    assert shlex.join(first) == f"{options} harvest --crawl latest"
    assert elsewhere(*first[:-1], OLD).status == 0
    steps = elsewhere("status", "--json", *given).json()["next"]
    assert all(f"{step['why']}; run: {step['command']}" in elsewhere("status", *given).out for step in steps)
    newer = shlex.split(steps[-1]["command"])[1:]
    question = ["query", "example.com", "--index", "columnar", "--crawl", newer[-1], "--source", source]
    assert proposed(*question, "--data", str(data)) == proposed("--data", str(data), *question) == newer
    assert shlex.join(newer[:-1]) == f"{options} harvest --crawl"
    assert elsewhere(*newer).status == 0
    tables = proposed("query", "x", "--table", "hosts", *given)
    assert shlex.join(tables) == f"{options} harvest --table hosts --key COLUMN --manifest PATH"
    # Variables of the environment hold for the next command, too.
    here = proposed("query", "example.com", CATALOGUE_DATA=str(tmp_path / "empty"), CATALOGUE_SOURCE=source)
    assert shlex.join(here) == "harvest --crawl latest"
