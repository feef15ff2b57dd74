"""The command line: exit statuses, messages, pipes, signals."""

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from catalogue.demo import Miniature
from catalogue.formatting import plural
from catalogue.output.ledger import Ledger
from tests.support.commands import Command, Ran
from tests.support.faults import FaultServer, Kind, always
from tests.support.miniatures import OLD
from tests.support.sources import Arrivals


def sentence(ran: Ran) -> str:
    lines = [line for line in ran.err.splitlines() if line.startswith("catalogue: ")]
    assert "Traceback" not in ran.err
    assert len(lines) == 1, ran.err
    return lines[0]


@pytest.fixture(scope="module")
def stored(harvested_data: Path, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("stored")
    assert (
        Command(harvested_data, str(mirror), home)("query", "*.org", "-o", "stored/", "--crawl", "latest").status == 0
    )
    return home / "stored"


@pytest.fixture
def occupied(stored: Path, tmp_path: Path) -> set[str]:
    """Write outputs and lists that invalid commands name; return their names."""
    copytree(stored, tmp_path / "stored")
    files = {"other/file": "", "spoilt/answer.json": "{", "rows.jsonl": "{no json", "urls.csv": "link,n\na.com/,1\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.csv").write_bytes(b"url\n\xe9")
    Ledger(tmp_path / "other.warc.gz.ledger", {"form": "warc", "most": None}).close()
    return {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("query 'exa*mple.com'", "patterns look like"),
        ("query", "needs a pattern, such as"),
        ("query x.com --crawl CC-MAIN-2014-10", "there is no crawl CC-MAIN-2014-10"),
        ("query x.com --crawl CC-MAIN-2012", "CC-MAIN-2012 has no columnar index"),
        ("query x.com --crawl latst", "did you mean latest?"),
        ("query x.com --columns urll", "did you mean url?"),
        ("query x.com --where 'fetch_status ='", "the condition cannot be read"),
        ("query x.com --where 'fetch_stats = 200'", "did you mean fetch_status?"),
        ("query x.com --from yesterday", "invalid time"),
        ("query x.com --from ''", "--from is given an empty value"),
        ("query x.com --output=", "-o is given an empty value"),
        ("query x.com --crawl 2022 --crawl ''", "--crawl is given an empty value"),
        ("query x.com --subset wat", "unknown subset 'wat'; use warc, crawldiagnostics, robotstxt or all"),
        ("query '*.com' --exact-url", "is not a complete URL"),
        ("plan http://a.com/ --match host --exact-url", "--match host others; leave out one of them"),
        ("query x.com -o found.xyz", "add --format"),
        ("query x.com --format table -o found.txt", "--format table cannot be written to a file"),
        ("query x.com -o found.parquet.gz", "use a name without .gz"),
        ("query x.com --format url --columns fetch_time", "needs the column url"),
        ("query nowhere.example --format cdxj --columns url", "needs the columns"),
        ("query x.com --count -o found.csv", "prints only a number"),
        ("forget --crawl all", "add --yes"),
        ("forget --crawl CC-MAIN-2099-10 --yes", "there is no crawl CC-MAIN-2099-10; the newest is"),
        ("query '*' --max-requests 1", "add --yes"),
        ("sql 'select * from nowhere'", "nowhere"),
        ("sql 'select urll from row_groups'", 'Referenced column "urll" not found'),
        ("sql 'select * from row_group'", 'Did you mean "row_groups"?'),
        ("sql 'selct 1'", 'syntax error at or near "selct"'),
        ("sql 'select url from captures'", "catalogue export ducklake writes, as cc.captures"),
        ("plan x.com --where 'fetch_status = \"200\"'", "write text in single quotes: '200'"),
        ("plan x.com --where 'subset = \"warc\"'", "write text in single quotes: 'warc'"),
        ("plan x.com --where 'url_host_tld = com'", "a crawl adds; write text in single quotes"),
        ("plan x.com --where 'nofun(fetch_status) = 1'", "Function with name nofun does not exist"),
        ("plan '*.grayline.*'", "the top-level domain; list them: '*.grayline.com' '*.grayline.org'"),
        ("plan '*.*'", "the top-level domain; list them: '*.com' '*.org'"),
        ("plan 'http://grayline.*'", "the top-level domain; list them: 'grayline.com/*' 'grayline.org/*'"),
        ("plan 'http://192.168.0.*'", "list the addresses; patterns look like"),
        ("plan x.com -o plan.txt", "is unknown; use an ending: .arrow, .arrows, .csv, "),
        ("plan '*.example.com/path*'", "use *.example.com, and choose by url_path"),
        ("sql '  '", "no SQL"),
        ("sql \udcff", "is not Unicode text"),
        ("sql 'from crawls where crawl = $c' --param c=\udcff", "invalid or repeated --param"),
        ("sql qqqq", "syntax error"),
        ("sql covrage", "there is no query covrage; did you mean coverage?"),
        ("sql find_url", "there is no query find_url; did you mean find-url?"),
        ("sql Coverage", "there is no query Coverage; did you mean coverage?"),
        ("sql 'select 1' --json --format csv", "--json means --format jsonl"),
        ("sql find-url --param patern=x", "unknown parameter patern; the parameters of this SQL are: p"),
        ("sql 'select 1' --param a=1", "parameters of this SQL are: none"),
        ("sql 'select $a'", "$a has no value; add --param a=VALUE"),
        ("sql 'select $a' --param a", "write NAME=VALUE"),
        ("sql 'select $a' --param a=1 --param a=2", "invalid or repeated --param 'a=2'"),
        ("get '*.example.com'", "is not the URL of one page; captures of many: catalogue query"),
        ("get 'example.com/*'", "is not the URL of one page; captures of many: catalogue query"),
        ("get example.com --text --links", "--text and --links exclude each other"),
        ("get example.com --main-content", "--main-content needs --text or --markdown"),
        ("get example.com --json --record", "--json and --record exclude each other"),
        ("get example.com --at yesterday", "invalid time 'yesterday'"),
        ("get example.com --receipt r", "--receipt needs one output file; add --save FILE"),
        ("query example.com --receipt r", "--receipt needs one output file; add -o FILE, without --scheduler"),
        ("query example.com --receipt r.csv -o r.csv", "need different files"),
        ("verify missing", "missing cannot be read"),
        ("site 'a*'", "'a*' is not a site; use a host, such as example.com"),
        ("site https://", "is not a site"),
        ("sample -n 0", "-n"),
        ("sample -n 5 --fetch warc", "no output; add one, such as -o"),
        ("sample -n 5 --fetch warc --format csv -o x.warc.gz", "leave out --format or --fetch"),
        ("sample -n 5 --crawl 2022 --harvest --dry-run", "use either --harvest or --dry-run"),
        ("sample -n 5 --fetch text -o x.warc.gz", "ends in .jsonl"),
        ("sample -n 5 -o x.unknown", "add --format"),
        ("sample -n 5 --json", "use --format jsonl"),
        ("query '*.is' CC-MAIN-2022-05", "to select a crawl use --crawl CC-MAIN-2022-05"),
        ("sample -n 5 2022-05", "to select a crawl use --crawl 2022-05"),
        ("""plan "'example.com/'" """, "is not a pattern; leave out its quotation marks"),
        ("harvest CC-MAIN-2022-05", "a crawl needs --crawl, such as --crawl latest"),
        ("sample -n 5 --format text", "Did you mean '--fetch text'?"),
        ("sample -n 5 --max-size 1MB", "need --fetch"),
        ("sample -n 5 --max 2", "--max needs --per"),
        ("sample -n 5 --fetch warc --main-content -o x.warc.gz", "warc has no texts"),
        ("sample -n 5 --urls-file /dev/null", "a query needs a pattern"),
        ("sample -n 500 --max-requests 0", "narrow the query, or add --yes"),
        ("fetch", "either patterns or --captures"),
        ("fetch '*.com' --captures rows.jsonl", "either patterns or --captures"),
        (
            "fetch --captures rows.jsonl --limit 0 --status 200 --crawl latest --latest",
            "leave out --crawl, --status, --limit, --latest",
        ),
        ("fetch '*.com' -o a.warc.gz --main-content", "warc has no texts"),
        ("fetch '*.com'", "no output; add one"),
        ("fetch '*.com' -o a.warc.gz --columns url", "leave out --columns"),
        ("fetch '*.com' --crawl 2022 --harvest --dry-run", "use either --harvest or --dry-run"),
        ("fetch '*.com' -o a.zip", "use an ending: .warc.gz"),
        ("fetch '*.com' -o a.jsonl --format parquet", "ends in .parquet"),
        ("fetch '*.com' -o a.parquet --format payload", "payloads are written to a folder"),
        ("fetch '*.com' -o a --format payload --max-size 1GB", "leave out --max-size"),
        ("fetch '*.com' -o a.warc.gz --max-size 0", "at least one byte"),
        ("fetch '*.com' -o no/a.warc.gz", "there is no folder no"),
        ("fetch --captures rows.jsonl -o a.warc.gz", "contains no captures"),
        ("fetch --captures latin.csv -o a.warc.gz", "Parquet or Arrow: it is not UTF-8 text"),
        ("fetch '*.example.com' -o a.warc.gz --max-requests 0", "add --yes"),
        ("fetch '*.example.com' -o other.warc.gz --max-size 1GB --yes", "is of another output"),
        ("query '*.is' -o stored/", "the captures of another query"),
        ("query '*.org' -o stored/ --status 200", "the captures of another query"),
        ("query '*.org' -o stored/ --columns url", "the captures of another query"),
        ("query '*.org' -o stored/ --format csv", "the captures of another query"),
        ("query '*.org' -o other", "contains other files"),
        ("query '*.org' -o no/such/", "there is no folder"),
        ("query '*.org' -o new/ --limit 3", "leave out --limit"),
        ("query '*.org' -o new/ --format table", "--format table cannot be written to a file"),
        ("query '*.org' -o new/ --count", "leave out --format and -o"),
        ("query '*.org' --by crawl", "--by needs --count"),
        ("query '*.org' --count --by crawl --limit 1", "without a limit"),
        ("query '*.org' -o spoilt/", "cannot be read"),
        ("sql 'select count(*) from cc.captures'", "run: catalogue export ducklake"),
        ("export iceberg table --location somewhere", "'somewhere'; use one such as s3a://commoncrawl/"),
        ("export iceberg table --location 's3a://commoncrawl/?x=1'", "without query or credentials"),
        ("join urls.csv --crawl latest -o urls.csv", "a join writes Parquet"),
        ("pull nowhere", "there is no folder"),
        ("join urls.csv --crawl latest", "no output"),
        ("join urls.csv --crawl latest -o other", "contains other files"),
        ("join urls.csv --crawl latest -o x --on b", "has no column b; there are link, n"),
        ("join urls.csv --crawl CC-MAIN-2020-10 -o x --on link", "CC-MAIN-2020-10"),
        ("join urls.csv --crawl latest -o x --on link --index cdx --columns url_path", "has no column url_path"),
        ("doctor --crawl 2022", "is not the name of a crawl"),
        ("doctor --crawl CC-MAIN-2012", "the first crawl that has one is CC-MAIN-2013-20"),
        ("doctor --crawl cc-main-2099-01", "; the newest is CC-MAIN-"),
        ("doctor --table hosts", "leave out --table"),
        ("backfill --budget much", "use 500MB or 2GB"),
        ("frobnicate", "No such command"),
        ("download example.com", "Did you mean 'fetch'?"),
        ("qurey example.com", "No such command 'qurey'. Did you mean 'query'?"),
        ("query x.com --colums url", "'--columns'"),
        ("query x.com --json", "No such option '--json'. Did you mean '--format'?"),
        ("get x.com -o page.html", "No such option '-o'. Did you mean '--save'?"),
        ("get x.com --nothing", "No such option '--nothing'; see: catalogue get --help"),
        ("query x.com --since 2022", "No such option '--since'. Did you mean '--from'?"),
        ("'*.example.com'", "Did you mean 'query *.example.com'?"),
        ("sql queries/coverage.sql", "run the statements of a file: catalogue sql < queries/coverage.sql"),
        ("query x.com --format jsn", "Did you mean 'json'?"),
        ("query x.com --format ndjson", "Did you mean 'jsonl'?"),
        ("query x.com --count --by host", "'host' is not 'crawl'; see: catalogue query --help"),
        ("query x.com --match dmain", "Did you mean 'domain'?"),
        ("export iceburg x", "Did you mean 'iceberg'?"),
        ("site example.com --crawl all", " are selected, and one can be shown; name it, such as CC-MAIN-2"),
        ("query - --count", "to read patterns from stdin use --urls-file -"),
        ("query @a.txt --count", "to read patterns from a file use --urls-file a.txt"),
        ("query x.com -o no/such/folder/x.csv", "there is no folder"),
        ("harvest --crawl nonsense", "is not the name of a crawl"),
        ("crawls --source gopher://x", "invalid source"),
        ("crawls --source https://user:secret@example.com/", "without query or credentials"),
        ("get example.com --crawl latest --max-requests 0", "raise --max-requests, or add --yes"),
        ("query '*.org' --max-bytes -1", "invalid size '-1'; use 500MB or 2GB"),
        ("query '*.org' --limit ten", "'ten' is not a valid number"),
        ("query '*' --max-bytes 1kB", "add --yes"),
        ("crawls --rate 0", "of the setting rate; use a number over 0"),
        ("query --urls-file - --urls-file -", "stdin can be read only once; leave out one --urls-file -"),
        ("query '*.org' -o https://user:secret@example.com/a.csv", "this output cannot be an address"),
        ("query '*.org' -o s3://bucket/found/", "this output cannot be an address"),
        ("plan '*.org' -o -", "this output cannot be standard output; name a path"),
        ("get example.com --save -", "this output cannot be standard output"),
        ("join urls.csv -o s3://bucket/a.parquet", "this output cannot be an address"),
        ("join urls.csv -o -", "this output cannot be standard output"),
        ("export iceberg s3://bucket/table", "this output cannot be an address"),
        ("export ducklake file:///tmp/a.ducklake", "this output cannot be an address"),
        ("serve --host a..b", "cannot listen at a..b, port 8000 (not the name of a host); choose another --host"),
        ("join urls.csv --crawl latest -o \udcff --on link", "has bytes that are not text in this locale"),
    ],
)
def test_invalid_use_is_one_sentence_and_a_status(asking: Command, occupied: set[str], words: str, says: str) -> None:
    ran = asking(*shlex.split(words))
    assert (ran.status, ran.out) == (2, ""), ran.err
    assert says in sentence(ran)
    assert ran.err.endswith(f"{sentence(ran)}\n")
    assert "secret" not in ran.err
    assert {path.name for path in asking.home.iterdir()} - {"cache"} == occupied


def test_missing_crawls_are_named_with_the_command(command: Command, crawl: str) -> None:
    for words in ("status", "query a.com", "plan a.com", "sql 'from crawls'", "backfill", "export iceberg x"):
        ran = command(*shlex.split(words))
        assert ran.status != 0
        assert "run: catalogue harvest --crawl" in sentence(ran)
    columnar = ["x.com", "--index", "columnar"]
    for each in (["query", *columnar], ["fetch", *columnar, "-o", "x.warc.gz"], ["sample", "-n1"], ["plan", *columnar]):
        ran = command(*each, "--crawl", f"{crawl}..{crawl}")
        option = "" if each[0] == "plan" else "add --harvest, or "
        assert sentence(ran).endswith(f"{crawl} is not harvested yet; {option}run: catalogue harvest --crawl {crawl}")
        assert ran.status == 2


def test_stored_crawls_without_footers_can_be_left_out(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(whole_mirror), tmp_path)
    (tmp_path / "many.txt").write_text("".join(f"{number}.example\n" for number in range(1001)), encoding="ascii")
    message = f"needs a harvest of 2 crawls; run: catalogue harvest --crawl {crawl},{OLD}"
    assert sentence(command("join", "many.txt", "--crawl", f"{OLD},{crawl}", "-o", "x")).endswith(message)
    assert command("harvest", "--crawl", crawl).status == 0
    assert command("harvest", "--crawl", OLD, "--index", "cdx").status == 0
    for words in (["query", "example.com", "--columns", "url_host_name"], ["sample", "-n1"]):
        advice = f"select crawls with --crawl, or run: catalogue harvest --crawl {OLD}"
        assert sentence(command(*words)).endswith(f"{OLD} is not harvested yet; {advice}")
        assert command(*words, "--crawl", crawl).status == 0


def test_options_may_precede_or_follow_the_command(harvested_data: Path, mirror: Path, tmp_path: Path) -> None:
    elsewhere = Command(tmp_path / "nothing here", "gopher://x", tmp_path)
    before = elsewhere("--data", str(harvested_data), "--source", str(mirror), "plan", "example.com", "--json")
    after = elsewhere("plan", "example.com", "--json", "--data", str(harvested_data), "--source", str(mirror))
    assert before.status == after.status == 0
    assert before.json() == after.json()
    assert elsewhere("status", "--data", str(harvested_data)).status == 0  # which asks no source


@pytest.mark.parametrize(("kind", "status", "says"), [(Kind.DENIED, 75, "403"), (Kind.NOT_FOUND, 1, "")])
def test_failing_source_keeps_the_old_file(
    asking: Command, mirror: Path, tmp_path: Path, kind: Kind, status: int, says: str
) -> None:
    target = tmp_path / "found.jsonl"
    target.write_text("from before\n", encoding="ascii")
    with FaultServer(mirror, script=always(kind)) as server:
        ran = Command(asking.data, server.url, tmp_path)("query", "*.example.com", "-o", str(target), "--yes")
    assert (ran.status, says in sentence(ran)) == (status, True)
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


@pytest.mark.in_part(2)
@pytest.mark.parametrize("words", [("query", "*.example.com"), ("sample", "-n", "1")])
def test_harvests_before_other_commands(command: Command, words: tuple[str, ...]) -> None:
    dear = command(*words, "--crawl", "all", "--harvest", "--max-requests", "1")
    assert "this takes" in sentence(dear)
    ran = command(*words, "--crawl", "latest", "--harvest")
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
        (["check", "--read-subset", "1/1"], "stopped"),
        (["query", "example.com", "--no-cache"], "stopped"),
        (["query", "example.com", "--no-cache", "-o", "found/"], "the same command continues it"),
    ],
)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signals_during_a_request_end_commands(
    asking: Command, mirror: Path, words: list[str], says: str, number: int, status: int
) -> None:
    arrivals = Arrivals()
    with FaultServer(mirror, script=arrivals) as server, replace(asking, source=server.url).start(*words) as process:
        arrivals.wait(1)
        process.send_signal(number)
        assert process.wait(30) == status
        assert process.stderr.read().decode().splitlines()[-1].endswith(says)


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_closed_output_pipe_ends_silently_with_141(asking: Command, format_: str) -> None:
    with asking.start("query", "*", "--yes", "--columns", "url", "--format", format_) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.in_soak
@pytest.mark.parametrize(("closed", "printed"), [("<&- >&-", b""), ("<&- 2>&-", b"{")])
def test_commands_run_with_closed_streams(asking: Command, closed: str, printed: bytes) -> None:
    words = ["sh", "-c", f'"$0" -m catalogue query example.com --limit 1 --quiet {closed}', sys.executable]
    ran = subprocess.run(words, env=asking.environment(), cwd=asking.home, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout[:1], ran.stderr) == (0, printed, b"")


def test_pipes_get_results_on_stdout_and_no_progress(command: Command) -> None:
    ran = command("harvest", "--crawl", "latest", "--quiet")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    reported = command("harvest", "--crawl", "latest", "--json", FORCE_COLOR="1", TERM="xterm")
    assert reported.json_lines()[0]["taken"] == 0
    assert "\x1b" not in reported.err
    row = command("crawls", "--json").json_lines()[0]
    assert 0 < row["files_harvested"] < row["files_listed"]
    assert f"{row['files_harvested']} of {row['files_listed']} files: warc" in command("crawls").out


def test_escapes_control_characters_and_prints_the_version(asking: Command) -> None:
    seen = asking("sql", "select chr(27) || '[2Jgone' as trap")
    assert "gone" in seen.out
    assert "\x1b" not in seen.out
    assert re.fullmatch(r"catalogue, version \S+\n", asking.again("--version").out)


@pytest.mark.in_soak
def test_demo_serves_until_ctrl_c_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    with command.start("demo", "--serve", TMPDIR=str(tmp_path)) as process:
        shown = ""
        while not (line := process.stdout.readline().decode()).startswith("  export"):
            assert line
            shown += line
        for words in ("crawls", "harvest", "status", "plan", "query"):
            assert f"$ catalogue {words}" in shown
        assert ">>> import catalogue" in shown
        assert "In total, " in shown
        assert not (tmp_path / "cache").exists()  # which would make later queries look free
        settings = dict(word.split("=", 1) for word in line.split()[1:])
        served = Command(Path(settings["CATALOGUE_DATA"]), settings["CATALOGUE_SOURCE"], tmp_path)
        assert served("query", "*.example.com", "--crawl", "latest", "--limit", "1").status == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in shown + process.stderr.read().decode()
    assert not list(tmp_path.glob("catalogue-demo-*"))
