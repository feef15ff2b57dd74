"""Help texts, completion by shells, colours and control characters."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.cli.app import entry
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import Miniature
from catalogue.store.database import Store
from catalogue.store.folder_settings import document_names
from catalogue.store.layout import StoredFile
from tests.support.amounts import part_of
from tests.support.commands import Command
from tests.support.miniatures import OLD
from tests.support.stores import raw

# ---- help ----


def all_commands(
    command: click.Command = entry, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner, name
            yield from all_commands(inner, (*words, name))


def examples_of(command: click.Command) -> str:
    """Return the examples of a help text."""
    return "\n".join(re.findall("\b\n(.*?)(?:\n\n|\\Z)", inspect.cleandoc(command.help or ""), re.DOTALL))


def commands_in(examples: str) -> Iterator[list[str]]:
    """Yield the words of each command, without redirections and explanations."""
    for example in re.findall(r"^catalogue .*(?:\n .*)*", examples, re.MULTILINE):
        for step in re.split(r" \|\|? ", re.split(r"(?<=\S) {2,}", example)[0]):
            if step.startswith("catalogue "):
                yield shlex.split(re.split(" [<>] ", step)[0], comments=True)[1:]


COMMANDS = {" ".join(words): command for words, command in all_commands()}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_has_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = examples_of(COMMANDS[name])
    explained = [line for line in examples.splitlines() if re.search(r"\S {2,}\S", line)]
    assert [line for line in explained if len(line) > 78] == []  # a help of 80 columns does not break them
    found = list(commands_in(examples))
    assert any(each[: len(name.split())] == name.split() for each in found)
    for example in found:
        status = entry.main([*example, "--help"], standalone_mode=False)  # raises for unknown options
        assert status == 0
    assert capsys.readouterr().out.count("Usage: ") == len(found)


OPTIONS = [
    [*words, each.opts[0]]
    for words, command in all_commands()
    for each in command.params
    if isinstance(each, click.Option) and not each.is_flag and not each.count
]


def test_options_need_their_values() -> None:
    """An option at the end of a command, or followed by a negative number, is not used without its value."""
    assert len(OPTIONS) > 150
    for words in OPTIONS:
        with pytest.raises(click.BadOptionUsage, match="requires an argument"):
            entry.main(words, standalone_mode=False)
    with pytest.raises(click.BadParameter, match="-1 is not in the range"):
        entry.main(["query", "example.com", "--limit", "-1"], standalone_mode=False)


def test_summaries_are_complete_and_options_of_all_commands_in_one_line(tmp_path: Path) -> None:
    command = Command(tmp_path / "data", "https://data.example/", tmp_path)
    for group in ([], ["export"]):
        _, _, listed = command(*group, "--help", COLUMNS="80").out.partition("Commands:\n")
        assert listed.count("\n") >= 3
        assert all(line.endswith(".") and not line.endswith("...") for line in listed.splitlines())
    assert "Maximum requests per second" in command("--help").out
    for words, each in part_of(all_commands(), 5):
        if words and not isinstance(each, click.Group):
            shown = command(*words, "--help", COLUMNS="100").out
            assert "Maximum requests per second" not in shown
            _, _, last = shown.partition("Options of all commands: ")
            names = "--data, --table, --source, --rate, --contact, --quiet, --verbose, --trace"
            assert " ".join(last.split()) == f"{names}; see: catalogue -h"


# ---- completion ----
def completed(command: Command, line: str, shell: str = "bash") -> list[str]:
    words = line.split(" ")
    ran = command(
        _CATALOGUE_COMPLETE=f"{shell}_complete",
        COMP_WORDS=words[-1] if shell == "fish" else line,
        COMP_CWORD=words[-1] if shell == "fish" else str(len(words) - 1),
    )
    assert (ran.status, ran.err) == (0, "")
    return [text.removeprefix("plain,") for text in ran.out.split()]


def test_completes_words(stored: Command) -> None:
    urls = [name for name in SCHEMA.names if name.startswith("url_p")]
    for typed, words in {
        "que": ["query"],
        "export i": ["iceberg"],
        "query --form": ["--format"],
        "query --format c": ["csv", "cdxj"],
        "query --subset r": ["robotstxt"],
        "query --columns url_p": urls,
        "harvest --values content_l": ["content_languages"],
        f"query --columns fetch_time,{urls[0]},url_p": [f"fetch_time,{urls[0]},{name}" for name in urls[1:]],
    }.items():
        assert completed(stored, f"catalogue {typed}") == words
    for shell, line, word in (("zsh", "catalogue query --crawl CC-MAIN-2018", OLD), ("fish", "catalogue que", "query")):
        assert f"_CATALOGUE_COMPLETE={shell}_complete" in stored("completion", shell).out
        assert word in completed(stored, line, shell)
    assert 'string split -m 1 "," $completion' in stored("completion", "fish").out


def test_completes_crawls_without_a_request(stored: Command, tmp_path: Path) -> None:
    assert completed(stored, "catalogue query --crawl CC-MAIN-2018") == [OLD]
    for typed, words in (("2018", [OLD]), ("2018-0", [OLD]), ("05", []), ("l", ["latest"])):
        assert completed(stored, f"catalogue query --crawl {typed}") == words
    for end in ("2018", "CC-MAIN-2018"):
        for before in (f"{OLD}..", f"latest,{OLD},"):
            assert completed(stored, f"catalogue query --crawl {before}{end}") == [f"{before}{OLD}"]
    nobody = Command(stored.data, "http://127.0.0.1:9/", tmp_path)
    assert "CC-MAIN-2012" in completed(nobody, "catalogue harvest --crawl CC-")
    assert "CC-MAIN-2012" not in completed(nobody, "catalogue query --crawl CC-")
    elsewhere = Command(tmp_path / "nothing", "http://127.0.0.1:9/", tmp_path)
    assert completed(elsewhere, "catalogue query --crawl C") == []
    assert completed(elsewhere, f"catalogue --data {stored.data} query --crawl CC-MAIN-2018") == [OLD]
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/footers.sqlite").write_bytes(b"no store" * 1000)
    assert completed(Command(tmp_path / "damaged", "", tmp_path), "catalogue harvest --crawl C") == []


NO_NAMES = ["$(touch ran)", "a b;c", "x\nplain,y", "'", "\x1b[2J"]
"""Names of crawls and datasets that a shell could run."""


def test_completes_nothing_that_a_shell_would_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    listed = json.dumps([{"id": name} for name in (*NO_NAMES, OLD)]).encode()
    with Store(data / "footers.sqlite", create=True) as store:
        stored = StoredFile(listed, len(listed), None, None, "", "")
        names = [f"crawl-data/{crawl}/cc-index-table.paths.gz" for crawl in (*NO_NAMES, OLD)]
        store.put("documents", [(name, stored) for name in (*names, "/cc-index-table.paths.gz", "collinfo.json")])
    for name in (*NO_NAMES, "hosts"):
        (data / name).mkdir()
        (data / name / "footers.sqlite").touch()
    command = Command(data, "", tmp_path)
    for asks in ("query", "harvest"):
        assert completed(command, f"catalogue {asks} --crawl ") == [OLD, "latest", "all"]
    assert completed(command, "catalogue query --table ") == ["hosts"]


def test_completion_writes_nothing(stored: Command, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in stored.data.iterdir()}
    store = stored.data / "footers.sqlite"
    assert any(OLD in name for name in document_names(store))
    assert {path.name: path.stat().st_mtime_ns for path in stored.data.iterdir()} == before
    with Store(store) as opened:  # names that are only in the log are found, too
        opened.put("documents", [("new", StoredFile(b"", 0, None, None, "", ""))])
        assert "new" in document_names(store)
    os.mkfifo(tmp_path / "pipe")
    assert document_names(tmp_path / "pipe") == []
    assert document_names(Path(os.fsdecode(b"/nowhere/\xff"))) == []
    with raw(tmp_path / "endless") as connection:
        connection.execute(
            "CREATE VIEW documents AS WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) "
            "SELECT key FROM n WHERE key < 0"
        )
    assert document_names(tmp_path / "endless", seconds=0.01) == []


def test_bash_completes_words(stored: Command, tmp_path: Path) -> None:
    """Also without importing slow libraries."""
    program = tmp_path / "bin/catalogue"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -X importtime -m catalogue "$@" 2>>imported\n')
    program.chmod(0o755)
    script = stored("completion", "bash").out
    requested = f"""{script}
COMP_WORDS=(catalogue query --crawl 2018) COMP_CWORD=3
_catalogue_completion catalogue
echo "${{COMPREPLY[@]}}"
complete -p catalogue"""
    environment = stored.environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", requested], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == OLD
    assert "_catalogue_completion" in second
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "imported").read_text().splitlines()}
    assert "catalogue.store.layout" in imported
    assert imported.isdisjoint({"aiohttp", "duckdb", "pandas", "pyarrow", "rich"})


def test_escapes_names_from_outside_on_a_terminal(command: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a"], "rub\x08out\x07": ["b"]}), tmp_path / "x.parquet")
    here = Command(command.data, str(tmp_path), command.home)
    assert here("harvest", "--table", "ours", "--key", "key", "x.parquet").status == 0
    requested = here("query", "a", "--table", "ours", "--columns", "rubout")
    other = here("harvest", "--table", "other", "--key", "rubout", "x.parquet")
    for reported in (requested.err, other.err):
        assert "rub\N{REPLACEMENT CHARACTER}out" in reported
        assert "".join(reported.splitlines()).isprintable()


# ---- hints ----


def test_explains_an_empty_result(stored: Command, whole_mirror: Path, tmp_path: Path) -> None:
    """Also in an empty folder, whose source has the same crawl."""
    newest, *others = dict.fromkeys(row["crawl"] for row in stored("status", "--json").json()["coverage"])
    for command in (stored, Command(tmp_path / "new", str(whole_mirror), tmp_path)):
        ran = command("query", "nosuch.example", "--count", "--subset", "warc", "--crawl", newest)
        assert (ran.status, ran.out) == (0, "0\n")
        assert ran.err.splitlines()[-3:] == [
            f"0 pages in {newest}",
            "tip: only pages were searched; --subset all adds redirects, errors and robots.txt",
            (
                "tip: nosuch.example is the home page only; "
                "'nosuch.example/*' is the site, '*.nosuch.example' includes subdomains"
            ),
        ]
    summary = f"0 pages in {1 + len(others)} crawls, {others[-1]} to {newest}"
    assert stored("query", "*.nosuch.example").err.splitlines()[0] == summary
    every = stored("query", "*.nosuch.example", "--subset", "all", "--crawl", newest)
    assert every.err == f"0 captures (pages, redirects and errors, robots.txt files) in {newest}\n"
    assert stored("query", "nosuch.example", "--quiet").err == ""
    assert "tip: to read patterns from a file use --urls-file a.txt" in stored("query", "a.txt").err


def test_prints_an_error_of_many_records_once(miniature: Miniature, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(miniature.folder), tmp_path)
    ran = command("fetch", "example.com", "--crawl", OLD, "-o", "a.warc.gz")  # whose archives are missing
    errors = [line for line in ran.err.splitlines() if line.startswith("catalogue: not fetched: ")]
    assert len({*errors}) == len(errors)
    assert sum(int(times) for line in errors for times in re.findall(r"\((\d+) times\)$", line)) == 138
