"""The command line: exit statuses, messages, pipes, signals."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import catalogue
from catalogue.demo import Miniature
from catalogue.formatting import plural
from tests.support.amounts import in_part, in_soak
from tests.support.commands import Command, Ran
from tests.support.faults import FaultServer, Kind, always
from tests.support.miniatures import OLD
from tests.support.sources import Arrivals


@pytest.fixture(scope="module")
def example(harvested: catalogue.Catalogue) -> pa.Table:
    """All captures of a site, of every crawl and with every column."""
    return harvested.captures("*.example.com").to_arrow()


def sentence(ran: Ran) -> str:
    """Return the message of an error, which is one line."""
    lines = [line for line in ran.err.splitlines() if line.startswith("catalogue: ")]
    assert "Traceback" not in ran.err
    assert len(lines) == 1, ran.err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["query", "exa*mple.com"], 2, "patterns look like"),
        (["query"], 2, "needs a pattern, such as"),
        (["query", "x.com", "--crawl", "CC-MAIN-2014-10"], 2, "there is no crawl CC-MAIN-2014-10"),
        (["query", "x.com", "--crawl", "CC-MAIN-2012"], 2, "CC-MAIN-2012 has no columnar index"),
        (["query", "x.com", "--crawl", "latst"], 2, "did you mean latest?"),
        (["query", "x.com", "--columns", "urll"], 2, "did you mean url?"),
        (["query", "x.com", "--where", "fetch_status ="], 2, "the condition cannot be read"),
        (["query", "x.com", "--where", "fetch_stats = 200"], 2, "did you mean fetch_status?"),
        (["query", "x.com", "--from", "yesterday"], 2, "invalid time"),
        (["query", "x.com", "--from", ""], 2, "--from is given an empty value"),
        (["query", "x.com", "--output="], 2, "-o is given an empty value"),
        (["query", "x.com", "--crawl", "2022", "--crawl", ""], 2, "--crawl is given an empty value"),
        (["query", "x.com", "--subset", "wat"], 2, "choose among warc"),
        (["query", "*.com", "--exact-url"], 2, "is not a complete URL"),
        (["plan", "http://a.com/", "--match", "host", "--exact-url"], 2, "--match host others; leave out one of them"),
        (["query", "x.com", "-o", "found.xyz"], 2, "add --format"),
        (["query", "x.com", "--format", "table", "-o", "found.txt"], 2, "--format table cannot be written to a file"),
        (["query", "x.com", "-o", "found.parquet.gz"], 2, "use a name without .gz"),
        (["query", "x.com", "--format", "url", "--columns", "fetch_time"], 2, "needs the column url"),
        (["query", "nowhere.example", "--format", "cdxj", "--columns", "url"], 2, "needs the columns"),
        (["query", "x.com", "--count", "-o", "found.csv"], 2, "prints only a number"),
        (["forget", "--crawl", "all"], 2, "add --yes"),
        (["forget", "--crawl", "CC-MAIN-2099-10", "--yes"], 2, "there is no crawl CC-MAIN-2099-10; the newest is"),
        (["query", "*", "--max-requests", "1"], 2, "add --yes"),
        (["sql", "select * from nowhere"], 2, "nowhere"),
        (["sql", "select urll from row_groups"], 2, 'Referenced column "urll" not found'),
        (["sql", "select * from row_group"], 2, 'Did you mean "row_groups"?'),
        (["sql", "selct 1"], 2, 'syntax error at or near "selct"'),
        (["sql", "select url from captures"], 2, "catalogue export ducklake writes, as cc.captures"),
        (["plan", "x.com", "--where", 'fetch_status = "200"'], 2, "write text in single quotes: '200'"),
        (["plan", "x.com", "--where", 'subset = "warc"'], 2, "write text in single quotes: 'warc'"),
        (["plan", "x.com", "--where", "url_host_tld = com"], 2, "subset; write text in single quotes"),
        (["plan", "x.com", "--where", "nofun(fetch_status) = 1"], 2, "Function with name nofun does not exist"),
        (["plan", "*.grayline.*"], 2, "the top-level domain; list them: '*.grayline.com' '*.grayline.org'"),
        (["plan", "http://grayline.*"], 2, "the top-level domain; list them: 'grayline.com/*' 'grayline.org/*'"),
        (["plan", "http://192.168.0.*"], 2, "list the addresses; patterns look like"),
        (["plan", "x.com", "-o", "plan.xyz"], 2, "is unknown; use an ending: .arrow, .arrows, .cdxj, "),
        (["plan", "*.example.com/path*"], 2, "use *.example.com, and choose by url_path"),
        (["sql", "  "], 2, "no SQL"),
        (["sql", "qqqq"], 2, "syntax error"),
        (["sql", "covrage"], 2, "there is no query covrage; did you mean coverage?"),
        (["sql", "find_url"], 2, "there is no query find_url; did you mean find-url?"),
        (["sql", "Coverage"], 2, "there is no query Coverage; did you mean coverage?"),
        (["sql", "select 1", "--json", "--format", "csv"], 2, "--json means --format jsonl"),
        (
            ["sql", "find-url", "--param", "patern=x"],
            2,
            "unknown parameter patern; the parameters of this SQL are: pat",
        ),
        (["sql", "select 1", "--param", "a=1"], 2, "parameters of this SQL are: none"),
        (["sql", "select $a"], 2, "$a has no value; add --param a=VALUE"),
        (["sql", "select $a", "--param", "a"], 2, "write NAME=VALUE"),
        (["sql", "select $a", "--param", "a=1", "--param", "a=2"], 2, "invalid or repeated --param 'a=2'"),
        (["frobnicate"], 2, "No such command"),
        (["download", "example.com"], 2, "Did you mean 'fetch'?"),
        (["qurey", "example.com"], 2, "No such command 'qurey'. Did you mean 'query'?"),
        (["query", "x.com", "--colums", "url"], 2, "'--columns'"),
        (["query", "x.com", "--format", "jsn"], 2, "Did you mean 'json'?"),
        (["query", "x.com", "--match", "dmain"], 2, "Did you mean 'domain'?"),
        (["export", "iceburg", "x"], 2, "Did you mean 'iceberg'?"),
        (["query", "-", "--count"], 2, "to read patterns from stdin use --urls-file -"),
        (["query", "@a.txt", "--count"], 2, "to read patterns from a file use --urls-file a.txt"),
        (["query", "x.com", "-o", "no/such/folder/x.csv"], 2, "there is no folder"),
        (["harvest", "--crawl", "nonsense"], 2, "is not the name of a crawl"),
        (["status", "--source", "gopher://x"], 0, ""),
        (["crawls", "--source", "gopher://x"], 2, "invalid source"),
        (["crawls", "--source", "https://user:secret@example.com/"], 2, "without query or credentials"),
        (["crawls", "--rate", "0"], 2, "of the setting rate; use a number over 0"),
    ],
)
def test_invalid_use_is_one_sentence_and_a_status(asking: Command, words: list[str], status: int, says: str) -> None:
    ran = asking(*words)
    assert ran.status == status, ran.err
    if says:
        assert says in sentence(ran)
        assert ran.err.endswith(f"{sentence(ran)}\n")
        assert ran.out == ""
    assert "secret" not in ran.err


def test_query_before_harvest_names_the_command(command: Command) -> None:
    for words in (["status"], ["query", "example.com"], ["plan", "example.com"], ["sql", "from crawls"]):
        ran = command(*words)
        assert ran.status != 0
        assert "run: catalogue harvest --crawl" in sentence(ran)


def test_missing_crawls_are_named_with_the_command(command: Command, crawl: str) -> None:
    columnar = ["x.com", "--index", "columnar"]
    for words in (
        ["query", *columnar],
        ["fetch", *columnar, "-o", "x.warc.gz"],
        ["sample", "-n1"],
        ["plan", *columnar],
    ):
        declared = sentence(command(*words, "--crawl", crawl))
        option = "" if words[0] == "plan" else "add --harvest, or "
        assert declared.endswith(f"{crawl} is not harvested yet; {option}run: catalogue harvest --crawl {crawl}")


def test_stored_crawls_without_footers_can_be_left_out(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(whole_mirror), tmp_path)
    assert command("harvest", "--crawl", crawl).status == 0
    assert command("harvest", "--crawl", OLD, "--index", "cdx").status == 0
    for words in (["query", "example.com", "--columns", "url_host_name"], ["sample", "-n1"]):
        advice = f"select crawls with --crawl, or run: catalogue harvest --crawl {OLD}"
        assert sentence(command(*words)).endswith(f"{OLD} is not harvested yet; {advice}")
        assert command(*words, "--crawl", crawl).status == 0


def test_failing_source_exits_with_75(asking: Command, mirror: Path, tmp_path: Path) -> None:
    with FaultServer(mirror, script=always(Kind.DENIED)) as server:
        command = Command(asking.data, server.url, tmp_path)
        ran = command("query", "example.com", "--yes")
    assert ran.status == 75
    assert "403" in sentence(ran)


def test_options_may_precede_or_follow_the_command(harvested_data: Path, mirror: Path, tmp_path: Path) -> None:
    elsewhere = Command(tmp_path / "nothing here", "gopher://x", tmp_path)
    before = elsewhere("--data", str(harvested_data), "--source", str(mirror), "plan", "example.com", "--json")
    after = elsewhere("plan", "example.com", "--json", "--data", str(harvested_data), "--source", str(mirror))
    assert before.status == after.status == 0
    assert before.json() == after.json()


def test_plan_json_has_documented_fields(asking: Command) -> None:
    plan = asking("plan", "*.example.com", "--json").json()
    assert {"files", "row_groups", "pages", "requests", "bytes", "seconds", "waves", "exact"} <= set(plan)
    assert plan["complete"] is True


def test_prints_one_json_object_a_line_in_a_pipe(asking: Command, example: pa.Table) -> None:
    ran = asking("query", "*.example.com", "--columns", "url,fetch_time,fetch_status")
    expected = example.select(["url", "fetch_time"]).to_pylist()
    found = ran.json_lines()
    assert [row["url"] for row in found] == [row["url"] for row in expected]
    assert [row["fetch_time"] for row in found] == [f"{row['fetch_time']:%Y-%m-%dT%H:%M:%SZ}" for row in expected]
    assert list(found[0]) == ["url", "fetch_time", "fetch_status", "crawl", "subset"]
    assert f"{len(expected):,} pages" in ran.err


def test_failed_output_keeps_the_old_file(asking: Command, mirror: Path, tmp_path: Path) -> None:
    target = tmp_path / "found.jsonl"
    target.write_text("from before\n", encoding="ascii")
    with FaultServer(mirror, script=always(Kind.NOT_FOUND)) as server:
        ran = Command(asking.data, server.url, tmp_path)("query", "*.example.com", "-o", str(target))
    assert ran.status == 1
    assert target.read_text(encoding="ascii") == "from before\n"
    assert [path.name for path in tmp_path.iterdir() if "found" in path.name] == ["found.jsonl"]


def test_limits_are_refused_only_after_the_budget_is_used_up(asking: Command) -> None:
    words = ("query", "*", "--index", "columnar", "--columns", "url", "--max-requests", "2")
    assert "this takes" in sentence(asking(*words, "--where", "fetch_status > 0"))
    found = asking(*words, "--where", "fetch_status > 0", "--limit", "1")
    assert (found.status, len(found.json_lines())) == (0, 1)
    refused = asking(*words, "--where", "fetch_status + 1 = 0", "--limit", "1")
    assert "were not enough for --limit; narrow the query, or add --yes" in sentence(refused)


def test_searches_of_a_limited_query_are_priced_before_they_are_made(mirror: Path, tmp_path: Path) -> None:
    with FaultServer(mirror) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        refused = asks("query", "http://nowhere.example/", "--crawl", "all", "--limit", "1", "--max-requests", "2")
        assert "this takes" in sentence(refused)
        assert {exchange.path for exchange in server.log} <= {"collinfo.json"}


@in_part(3)
@pytest.mark.parametrize(
    "words", [("query", "*.example.com"), ("fetch", "*.example.com", "--dry-run", "--json"), ("sample", "-n", "1")]
)
def test_harvests_before_other_commands(command: Command, mirror: Path, words: tuple[str, ...]) -> None:
    newest = max(path.name for path in (mirror / "crawl-data").iterdir())
    dear = command(*words, "--crawl", "all", "--harvest", "--max-requests", "1")
    assert "this takes" in sentence(dear)
    ran = command(*words, "--crawl", newest, "--harvest")
    assert ran.status == 0, ran.err
    assert ran.json_lines()


def test_forgets_crawls(miniature: Miniature, tmp_path: Path) -> None:
    command, newest = Command(tmp_path / "data", str(miniature.folder), tmp_path), miniature.crawls[0]
    assert command("harvest", "--crawl", newest, "--index", "both").status == 0
    files = len(command("sql", "from files", "--json").json_lines())
    refused = command("forget", "--crawl", "latest")
    assert (refused.status, newest in sentence(refused)) == (2, True)
    forgotten = command("forget", "--crawl", "latest", "--yes")
    assert forgotten.status == 0
    deleted = f"what is stored of {newest} is deleted: {plural(files, 'footer')} and 1 list of blocks\n"
    assert forgotten.err == deleted
    assert command("sql", "from files", "--json").out == ""


def test_counts_the_harvested_files_of_crawls(command: Command, mirror: Path) -> None:
    newest = max(path.name for path in (mirror / "crawl-data").iterdir())
    assert command("harvest", "--crawl", newest).status == 0
    row = command("crawls", "--json").json_lines()[0]
    assert 0 < row["files_harvested"] < row["files_listed"]
    counted = f"{row['files_harvested']} of {row['files_listed']} files: warc"
    assert counted in command("crawls").out


def test_writes_to_device_files(asking: Command, tmp_path: Path) -> None:
    """Regular files are replaced when they are complete; devices and pipes are written to."""
    into = tmp_path / "all.txt"
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    words = ["query", "shop.example.com/dir/*", "--format", "jsonl", "-o", str(link)]
    with into.open("wb") as file:
        file.write(b"first\n")
        file.flush()
        with asking.start_on(file.fileno(), *words, "--quiet") as process:
            assert process.wait(60) == 0
        file.seek(0, os.SEEK_END)
        file.write(b"last\n")
    lines = into.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    assert len(lines) > 2
    assert asking.apart(*words).out.splitlines() == lines[1:-1]
    aside = tmp_path / "aside.jsonl"
    aside.touch()
    (tmp_path / "link.jsonl").symlink_to(aside)
    assert asking("query", "shop.example.com/dir/*", "-o", str(tmp_path / "link.jsonl")).status == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert aside.read_text(encoding="utf-8").splitlines() == lines[1:-1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["doctor"], "stopped"),
        (["query", "example.com", "--no-cache"], "stopped"),
        (["query", "example.com", "--no-cache", "-o", "found/"], "the same command continues it"),
    ],
)
def test_sigterm_exits_with_143(asking: Command, mirror: Path, words: list[str], says: str) -> None:
    arrivals = Arrivals()
    with FaultServer(mirror, script=arrivals) as server, replace(asking, source=server.url).start(*words) as process:
        arrivals.wait(1)
        process.terminate()
        assert process.wait(30) == 143
        assert process.stderr.read().decode().splitlines()[-1].endswith(says)


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_closed_output_pipe_ends_silently_with_141(asking: Command, format_: str) -> None:
    with asking.start("query", "*", "--yes", "--columns", "url", "--format", format_) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@in_soak
@pytest.mark.parametrize(("closed", "printed"), [("<&- >&-", b""), ("<&- 2>&-", b"{")])
def test_commands_run_with_closed_streams(asking: Command, closed: str, printed: bytes) -> None:
    words = ["sh", "-c", f'"$0" -m catalogue query example.com --limit 1 --quiet {closed}', sys.executable]
    ran = subprocess.run(words, env=asking.environment(), cwd=asking.home, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout[:1], ran.stderr) == (0, printed, b"")


def test_pipes_get_results_on_stdout_and_no_progress(command: Command, mirror: Path) -> None:
    newest = max(path.name for path in (mirror / "crawl-data").iterdir())
    ran = command("harvest", "--crawl", newest, "--quiet")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    reported = command("harvest", "--crawl", newest, "--json", FORCE_COLOR="1", TERM="xterm")
    assert reported.json_lines()[0]["taken"] == 0
    assert "\x1b" not in reported.err


def test_escapes_control_characters(asking: Command) -> None:
    seen = asking("sql", "select chr(27) || '[2Jgone' as trap")
    assert "gone" in seen.out
    assert "\x1b" not in seen.out


def test_runs_as_module_and_prints_version(asking: Command) -> None:
    assert re.fullmatch(r"catalogue, version \S+\n", asking.again("--version").out)


@in_soak
def test_demo_serves_until_ctrl_c_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    with command.start("demo", "--serve", TMPDIR=str(tmp_path)) as process:
        assert process.stdout
        assert process.stderr
        shown = ""
        while not (line := process.stdout.readline().decode()).startswith("  export"):
            assert line
            shown += line
        for words in ("crawls", "harvest", "status", "plan", "query"):
            assert f"$ catalogue {words}" in shown
        assert ">>> import catalogue" in shown
        assert not (tmp_path / "cache").exists()  # which would make later queries look free
        settings = dict(word.split("=", 1) for word in line.split()[1:])
        served = Command(Path(settings["CATALOGUE_DATA"]), settings["CATALOGUE_SOURCE"], tmp_path)
        assert served("query", "*.example.com", "--crawl", "latest", "--limit", "1").status == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in shown + process.stderr.read().decode()
    assert not list(tmp_path.glob("catalogue-demo-*"))
