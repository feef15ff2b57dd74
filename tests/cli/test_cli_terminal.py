"""Tables, messages, progress and questions on a terminal."""

import gzip
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.archives import warc
from tests.support.cdx_sources import Archived, write_source
from tests.support.commands import Command
from tests.support.crawls import CRAWL
from tests.support.faults import FaultServer


def on_a_terminal(command: Command, *words: str, columns: int = 80, typed: str = "", **environment: str) -> str:
    """Return what a terminal of this width shows while a user types, or without a keyboard."""
    leader, follower = pty.openpty()
    os.write(leader, typed.encode())
    shown = {"COLUMNS": str(columns), "TERM": "xterm", **environment}
    with command.start_on(follower, *words, keyboard=bool(typed), **shown) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # of Linux, when the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        process.wait(60)
    os.close(leader)
    return seen.decode()


def left_on_screen(seen: str) -> list[str]:
    """Return the lines that stay on a terminal: without progress bars, which a slow machine shows longer."""
    lines, row = [""], 0
    for part in re.split(r"(\n|\r|\x1b\[[0-9;?]*[A-Za-z])", seen):
        if part == "\n":
            row += 1
            lines[row:] = lines[row:] or [""]
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part != "\r" and not part.startswith("\x1b"):
            lines[row] += part
    return lines[:-1] if lines[-1] == "" else lines


def test_values_from_outside_do_not_change_the_terminal(command: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a"], "b": ["\x1b[2J\x9b2J\u202e end"]}), tmp_path / "x.parquet")
    here = Command(command.data, str(tmp_path), command.home)
    assert here("harvest", "--table", "ours", "--key", "key", "x.parquet").status == 0
    write_source(tmp_path, [Archived(gzip.compress(warc("<meta charset=utf-8>\x9b2J\u202e end".encode())))])
    ours = [["sql", "select chr(27) || '[2J end' as b", "--format", "csv"]]
    ours += [["query", "a", "--format", each] for each in ("csv", "tsv", "jsonl")]
    pages = [["get", "example.com", "--crawl", CRAWL, *form] for form in ([], ["--text"], ["--text", "--json"])]
    for words in (*([*each, "--table", "ours"] for each in ours), *pages):
        seen = on_a_terminal(here, *words)
        assert " end" in seen
        assert not re.search("\x1b\\[2J|[\x9b\u202e]", seen)


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        (160, ["fetch_time", "fetch_status", "content_mime_detected", "url", "crawl"], ""),
        (80, ["fetch_time", "fetch_status", "content_mime_detected", "url"], "1 column more (crawl): "),
        (60, ["fetch_time", "url"], "3 columns more (fetch_status, content_mime_detected, crawl): "),
        (20, ["url"], "4 columns more (fetch_time, fetch_status, content_mime_detected and 1 more): "),
    ],
)
def test_cuts_urls_and_not_times(asking: Command, columns: int, shown: list[str], left_out: str) -> None:
    words = ["query", "*.example.com", "--limit", "20", "--where", "length(url) > 31", "--subset", "warc"]
    rows = asking(*words).json_lines()
    names, line, *lines = left_on_screen(on_a_terminal(asking, *words, columns=columns))
    assert len(line) <= columns
    places = [match.span() for match in re.finditer("-+", line)]
    assert all(name.startswith(names[a:b].strip().rstrip("…")) for name, (a, b) in zip(shown, places, strict=True))
    for row, messages in zip(rows, lines[:20], strict=True):
        for name, (start, end) in zip(shown, places, strict=True):
            value, seen = str(row[name]), messages[start:end].strip()
            if name == "fetch_time":
                value = value.replace("T", " ").removesuffix("Z")
            assert seen == value or (name not in {"fetch_time", "crawl"} and value.startswith(seen.removesuffix("…")))
            assert name != "url" or len(seen) >= min(32, len(value), columns)
    note = " ".join(lines[20:])
    how = "widen the terminal, choose some by --columns, or add --format jsonl"
    assert (left_out + how in note) if left_out else ("column" not in note)


@pytest.mark.parametrize(
    ("words", "how"),
    [
        (["sample", "-n", "3"], "choose some by --columns, or add --format jsonl"),
        (["join", "urls.txt", "--dry-run"], "widen the terminal, or add --json"),
    ],
)
def test_hint_about_hidden_columns_fits_the_table(asking: Command, words: list[str], how: str) -> None:
    (asking.home / "urls.txt").write_text("example.com\n", encoding="ascii")
    assert how in " ".join(on_a_terminal(asking, *words, columns=40).split())


def test_question_names_options(command: Command) -> None:
    seen = " ".join(on_a_terminal(command, "query", "example.com", typed="n\n").split())
    assert "add --crawl latest" in seen
    assert "Harvest now?" in seen
    assert "crawls=" not in seen


@pytest.mark.in_part(3)
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_never_cuts_numbers_and_times(asking: Command, columns: int) -> None:
    sql = """select repeat('x', 90) as text, 12345678901234567890::hugeint as count, 'name' as a_column_of_long_name,
    timestamp '2022-01-16 10:00:00' as time, date '2022-01-16' as day, 0.125::decimal(9, 3) as share from range(1500)"""
    seen = on_a_terminal(asking, "sql", sql, columns=columns).splitlines()
    assert max(map(len, seen)) <= columns
    note = " ".join(seen[1502:])
    assert "12,345,678,901,234,567,890" in seen[2] or columns == 40
    assert "2022-01-16 10:00:00" in seen[2] or "time" in note
    assert "0.125" in seen[2] or note.endswith("widen the terminal, or add --format jsonl")
    assert len(set(seen[2:1502])) == 1
    assert "…" in seen[2]
    if columns == 80:  # a pipe has no width
        assert asking("sql", sql).out.splitlines()[2].startswith("x" * 90)


def test_notes_wrap_at_words_and_keep_commands_on_one_line(asking: Command, command: Command, crawl: str) -> None:
    words, note = ("query", "--count", "https://example.com/a"), "page is a separate pattern; if it belongs to a URL"
    assert note in on_a_terminal(asking, *words, "page", columns=200)
    assert "separate pattern" not in on_a_terminal(asking, *words, "example.org/b", columns=200)
    tip = next(line for line in asking("query", "nothing.example").err.splitlines() if line.startswith("tip"))
    seen = left_on_screen(on_a_terminal(asking, "query", "nothing.example", columns=40))
    assert max(map(len, seen)) <= 40 < len(tip)
    assert tip in " ".join(seen)
    columnar = ("x.com", "--index", "columnar", "--crawl", crawl)
    shown = left_on_screen(on_a_terminal(command, "plan", *columnar, columns=30))
    assert [line for line in shown if "--crawl" in line] == [f"catalogue harvest --crawl {crawl}"]
    elsewhere = command.data / "a folder with a name that fills most of a line"
    assert f"--data '{elsewhere}' harvest --crawl latest\n" in command("doctor", "--data", str(elsewhere)).out


@pytest.mark.in_soak
def test_status_and_crawls_fit_a_terminal(asking: Command) -> None:
    seen = on_a_terminal(asking, "status")
    crawls = [line.split()[0] for line in seen.splitlines() if line.startswith("CC-MAIN")]
    assert crawls
    assert crawls == [line.split()[0] for line in asking("status").out.splitlines() if line.startswith("CC-MAIN")]
    assert "size" in seen
    assert "column" not in seen
    assert "has no columnar index" in on_a_terminal(asking, "crawls", columns=60)


SIGNS = {"colours": r"\x1b\[[0-9;]*[1-9][0-9;]*m", "moves": r"\x1b\[[0-9?;]*[A-Zhl]"}


@pytest.mark.parametrize(
    ("environment", "sent"),
    [({"TERM": "xterm-256color"}, {*SIGNS}), ({"NO_COLOR": "1"}, {"moves"}), ({"TERM": "dumb"}, set())],
)
def test_colours_only_terminals_that_support_it(command: Command, environment: dict[str, Any], sent: set[str]) -> None:
    seen = on_a_terminal(command, "harvest", "--crawl", "latest", "--rate", "2", "--subset", "all", **environment)
    assert ("waiting for the source" in seen) is bool(sent)  # dumb terminals have no bars
    assert {name for name, sign in SIGNS.items() if re.search(sign, seen)} == sent


def test_harvest_shows_progress_on_a_terminal_and_wide_values_overflow(asking: Command, command: Command) -> None:
    words = ("harvest", "--crawl", "latest", "--subset", "all", "--values", "content_languages", "--yes", "--rate", "2")
    seen = on_a_terminal(command, *words, columns=110)
    assert re.search(r"m(\d)/\1\x1b", seen)  # all files
    assert re.search(r"CC-MAIN-\S+ values ", seen)  # not the bar of the footers, whose rate would be negative
    assert "━" not in "".join(left_on_screen(seen))
    wide = on_a_terminal(asking, "sql", "select if(i < 1400, 1, 1234567) as n from range(1500) t(i)").splitlines()
    assert (wide[1], wide[-1]) == ("-", "1,234,567")


@pytest.mark.in_soak
@pytest.mark.parametrize("word", ["crawls", "doctor"])
def test_shows_that_it_waits_for_a_slow_source(command: Command, mirror: Path, word: str) -> None:
    with FaultServer(mirror, latency=1.0) as server:
        seen = on_a_terminal(Command(command.data, server.url, command.home), word)
    assert "waiting for the source" in seen


@pytest.mark.in_soak
def test_shows_the_first_hundred_rows_of_a_large_result(asking: Command) -> None:
    words = ("query", "*.com", "--subset", "all", "--columns", "url", "--yes")
    count = int(asking("query", "*.com", "--subset", "all", "--count", "--yes").out)
    seen = on_a_terminal(asking, *words, columns=300)
    assert f"the first 100 of {count:,} rows; all of them: -o rows.csv, or --format jsonl" in seen
    assert seen.count("\nhttp") == 100
    assert on_a_terminal(asking, *words, "--limit", "150", columns=300).count("\nhttp") == 150
    assert asking(*words, "--format", "table").out.count("\nhttp") == count


@pytest.mark.in_soak
def test_gives_a_tip_once_a_session(asking: Command) -> None:
    question = f"{sys.executable} -m catalogue query nothing.example"
    leader, follower = pty.openpty()
    environment = asking.environment(PYTHONPATH=os.pathsep.join(sys.path))
    options: dict[str, Any] = {"stdout": follower, "stderr": follower, "env": environment, "start_new_session": True}
    subprocess.run(["sh", "-c", f"{question}; {question}"], **options, timeout=60, check=False)
    seen = os.read(leader, 1 << 16).decode()
    os.close(follower)
    os.close(leader)
    assert seen.count("0 pages") == 2
    assert seen.count("is the home page only") == 1


def test_plans_of_several_crawls_are_a_table(asking: Command, whole_crawls: list[str]) -> None:
    seen = asking("plan", "example.com/*", "--crawl", ",".join(whole_crawls)).out.splitlines()
    assert seen[0].split() == ["crawl", "index", "requests", "bytes", "seconds", "instead", "of"]
    assert [line.split()[0] for line in seen[2 : 2 + len(whole_crawls)]] == whole_crawls[::-1]


@pytest.mark.in_soak
def test_summary_is_the_same_before_and_after_a_harvest(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(whole_mirror), tmp_path)
    words = ("query", "*.example.com", "--crawl", crawl, "--format", "url")
    questions = [[*words, *more] for more in ((), ("--subset", "all"), ("--status", "404"), ("--subset", "robotstxt"))]
    nothing_stored = [command(*question, "--quiet").out.count("\n") for question in questions]
    pages, found, errors, robots = nothing_stored
    assert 0 < pages < found
    kinds = "redirects and errors, robots.txt files"
    summaries = [f"{pages} pages", f"{found} captures (pages, {kinds})", f"{errors} captures ({kinds})"]
    summaries.append(f"{robots} robots.txt files")
    for _ in range(2):
        assert [command(*question).err for question in questions] == [f"{each} in {crawl}\n" for each in summaries]
        assert "tip:" not in on_a_terminal(command, *questions[0], columns=200)
        assert command("harvest", "--crawl", crawl).status == 0


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "words",
    [("query", "--ordered", "--limit", "5", "--rate", "2", "--subset", "warc"), ("sample", "-n30", "--rate", "2")],
)
def test_reading_shows_cost_and_progress_before_rows(asking: Command, words: tuple[str, ...]) -> None:
    """The rate keeps requests waiting for over a second."""
    seen = on_a_terminal(asking, *words, "*.com", "--columns", "url", "--yes", columns=110)
    cost, rest = seen.split("\n", 1)
    assert re.search(r"\d+ requests, [\d.]+ [kM]B, about \d+ s", cost)
    assert rest.index("reading ") < rest.index("https://")
    assert "0 B" not in seen


@pytest.mark.in_part(4)
@pytest.mark.parametrize(
    ("words", "done"),
    [
        (["query", "*.example.com", "--index", "columnar"], "url"),
        (["plan", "*.example.com", "--index", "columnar"], "row groups"),
        (["sample", "-n", "2"], "url"),
        (["fetch", "*.example.com", "--index", "columnar", "--dry-run"], "captures"),
    ],
)
def test_offers_to_harvest_a_crawl_at_its_price(command: Command, crawl: str, words: list[str], done: str) -> None:
    words += ["--crawl", crawl]
    for _ in range(2):
        seen = on_a_terminal(command, *words, typed="n\n", columns=1000)
        assert re.search(
            rf"is not harvested.*Harvesting {crawl} takes \d+ requests, [\d.]+ [kM]B, about \d+ s\. ", seen
        )
        assert f"run: catalogue harvest --crawl {crawl}" in seen
    assert f"harvest --crawl {crawl}" in command(*words).err
    assert done in on_a_terminal(command, *words, typed="y\n")
    assert command(*words).status == 0
