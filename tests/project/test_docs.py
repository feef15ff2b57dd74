"""What is documented is true: transcripts are what the commands print, and nothing is left out."""

import doctest
import gzip
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.cli import messages
from catalogue.cli.app import entry
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import LoopbackServer, Miniature
from catalogue.query.resolved_query import CDX_COLUMNS
from tests.cli.test_help_and_completion import COMMANDS, commands_in, examples_of
from tests.support.commands import ENDLESS, Command, ended, run_here
from tests.support.miniatures import keep_in
from tests.support.prefix_indexes import url_key, write_index

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PRODUCTION = ROOT / "docs/how-to/production.md"
TUTORIAL = ROOT / "docs/tutorial.md"
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("skills/**/*.md")])
TIMES = re.compile(r"((?<=fetched now; \d requests, )\d+\.\d [kM]B, )?\b\d+\.\d+ s\b")
"""Seconds, and the bytes of a harvest, which requests less once it knows the length of a footer."""
RUN = re.compile(r"^```(console|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
STARTED = re.compile(r"^ExecStart=/opt/catalogue/bin/(.*)", re.MULTILINE)
EXAMPLE = re.compile(r"^catalogue .*(?:\n .*)*", re.MULTILINE)
"""A command of a help page or of a block of ``sh``, and the lines that it goes on."""
NOT_RUN = re.compile(r"s3:|https:|tcp:|pages\.cdxj|catalogue (serve|demo|mcp --http|query --scheduler|sql$)\b")
"""Examples that need the network, another program, a cluster or a terminal, or that never end."""
HERE = {
    "/srv/www": "www",
    "~": ".",
    "CC-MAIN-2021-04": "CC-MAIN-2018-05",
    "CC-MAIN-2021-49": "CC-MAIN-2022-05",
    "CC-MAIN-2022-49": "CC-MAIN-2026-30",
}
"""Folders and crawls that examples name, and those that tests have instead."""
COMMAND = re.compile(r"\$ (catalogue .*)\n((?:(?!\$ ).*\n)*)")
OLD_INDEX = [(url_key("http://example.com/page"), (1, 2, 3, 4, 5))]
FILE = re.compile(r"```{code-block} text\n:caption: (\S+)\n\n(.*?)```", re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def follow(page: Path, command: Command) -> int:
    """Do what a page says, and see that it says what comes of it; returns how much that was."""
    done = 0
    for name, content in FILE.findall(text_of(page)):
        (command.home / name).write_text(content, encoding="utf-8")
    names: dict[str, object] = {}
    for kind, block in RUN.findall(text_of(page)):
        if kind == "pycon":
            done += followed_in_python(block, names, command)
            continue
        for words, expected in COMMAND.findall(block):
            ran = run_in_one(command, shlex.split(words)[1:], alone=not names)
            printed = ran.replace(f"{command.home.resolve()}/.local", "~/.local")
            printed = printed.replace(f"{command.home.resolve()}/", "")
            assert TIMES.sub("", printed) == TIMES.sub("", expected), words
            done += 1
    return done


def run_in_one(command: Command, words: list[str], *, alone: bool) -> str:
    """Return the output and the errors of a command; in another process if this one has opened a catalogue."""
    if alone and not ENDLESS & {*words}:
        return run_here(words, command.environment(), command.home, in_one=True).out
    with command.start_in_one(*words) as process:
        return ended(process).out


def followed_in_python(block: str, names: dict[str, object], command: Command) -> int:
    test = doctest.DocTestParser().get_doctest(block, names, "page", None, 0)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(command.home)
        for name, value in command.environment().items():
            if name.startswith("CATALOGUE_"):
                here.setenv(name, value)
        ran = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
    names.update(test.globs)
    assert not ran.failed
    return ran.attempted


def make_files(home: Path) -> None:
    (home / "files").mkdir()
    (home / "www").mkdir()
    write_index(home / "files/url-index.1356128792", OLD_INDEX)
    for name in ("a", "b"):
        pq.write_table(pa.table({"name": [name]}), home / f"files/{name}.parquet")
    for name in ("urls.txt", "domains.txt"):
        (home / name).write_text("example.com\n", encoding="utf-8")
    (home / "links.csv").write_text("page,link\n/,https://example.com/\n", encoding="utf-8")
    (home / "statements.sql").write_text("from crawls; from files;\n", encoding="utf-8")


def run_examples(text: str, command: Command) -> int:
    """Run commands; none may be refused. Returns how many there were."""
    done = 0
    for example in EXAMPLE.findall(text):
        line = re.split(r"(?<=\S) {2,}", example)[0]
        for there, here in HERE.items():
            line = line.replace(there, here)
        out = b""
        for step in re.split(r" \|\|? ", line):
            step, _, file = step.partition(" > ")[0].partition(" < ")  # noqa: PLW2901 - without redirections
            out = (command.home / file).read_bytes() if file else out
            words = shlex.split(step, comments=True)
            if words[0] != "catalogue" or NOT_RUN.search(step):
                continue
            ran = run_here(words[1:], command.environment(), command.home, given=out)
            assert ran.status in {0, 1} or "add --yes" in ran.err, f"{step}: {ran.err}"
            out = ran.out.encode()
            done += 1
    return done


@pytest.fixture(scope="module")
def source(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("source") / "source"
    copytree(miniature.folder, folder, copy_function=os.link)
    hosts = folder / "projects/host-index-testing/v2.parquet"
    hosts.parent.mkdir(parents=True)
    pq.write_table(pa.table({"surt_host_name": ["com,example", "com,example,www"]}), hosts)
    hosts.with_suffix(".paths.gz").write_bytes(gzip.compress(f"{hosts.relative_to(folder)}\n".encode()))
    write_index(folder / "projects/url-index/url-index.1356128792", OLD_INDEX)
    return str(folder)


HELP = {name: text for name, command in COMMANDS.items() if name and (text := examples_of(command))}


@pytest.mark.in_part(14)
@pytest.mark.parametrize("name", HELP)
def test_help_examples_run(name: str, taught: Command, tmp_path: Path) -> None:
    copytree(taught.home / "data", tmp_path / "data")
    make_files(tmp_path)
    command = replace(taught, home=tmp_path)
    if name == "pull":
        assert command("export", "snapshot", "www/index-footers").status == 0
    assert run_examples(HELP[name], command) or NOT_RUN.search(HELP[name])


@pytest.fixture(scope="module")
def taught(source: str, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Where the tutorial ends; to be copied."""
    command = Command(Path("data"), source, tmp_path_factory.mktemp("tutorial"))
    assert follow(TUTORIAL, command) >= 18
    return command


class Pasted(Command):
    """The command with the variables that the README exports, and no others."""

    def environment(self, **more: str) -> dict[str, str]:
        (exported,) = re.findall("^export (.*)$", text_of(README), re.MULTILINE)
        ours = {name: value for name, value in super().environment(**more).items() if not name.startswith("CATALOGUE_")}
        return ours | dict(each.split("=") for each in exported.split())


@pytest.mark.in_part(2)
@pytest.mark.parametrize("served", [False, True])
def test_readme_transcripts_are_real(source: str, miniature: Miniature, tmp_path: Path, *, served: bool) -> None:
    """Either as they stand, or with the address of a server, as ``demo --serve`` prints it."""
    keep_in(tmp_path / ".cache/catalogue", miniature)
    with LoopbackServer(Path(source)) as server:
        command = Command(Path("data"), server.url, tmp_path) if served else Pasted(Path("data"), "", tmp_path)
        assert follow(README, command) >= 7


@pytest.mark.in_part(8)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if RUN.search(text_of(page)) or SHELL.search(text_of(page))],
    ids=lambda page: page.stem,
)
def test_how_to_transcripts_are_real(page: Path, taught: Command, tmp_path: Path) -> None:
    copytree(taught.home / "data", tmp_path / "data")
    make_files(tmp_path)
    command = replace(taught, home=tmp_path)
    done = follow(page, command) if page != TUTORIAL else 0
    examples = "".join(SHELL.findall(text_of(page)))
    assert done + run_examples(examples, command) or NOT_RUN.search(examples)


def test_shell_blocks_use_existing_options() -> None:
    texts = [text_of(page) for page in [README, *PAGES]]
    found = [
        words for text in texts for block in SHELL.findall(text) + STARTED.findall(text) for words in commands_in(block)
    ]
    assert len(found) > 20
    for words in found:
        assert entry.main([*words, "--help"], standalone_mode=False) == 0, words


def test_proxy_example_overwrites_every_address_header() -> None:
    code = "".join(text_of(path) for path in (ROOT / "catalogue/server").glob("*.py"))
    heeded = {"host", *re.findall(r'"(x-forwarded-\w+)"', code)}
    overwritten = re.findall(r"proxy_set_header (Host|X-\S+) ", text_of(PRODUCTION))
    assert heeded == {name.lower() for name in overwritten}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_unit_is_valid(tmp_path: Path) -> None:
    (unit,) = re.findall(r"^```ini\n(.*?)^```", text_of(PRODUCTION), re.DOTALL | re.MULTILINE)
    file = tmp_path / "catalogue.service"
    file.write_text(unit.replace("/opt/catalogue/bin/catalogue", sys.executable), encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_python_blocks_compile() -> None:
    text = "".join(map(text_of, [README, *PAGES]))
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "page", "exec")


def test_readme_is_short_and_names_every_command() -> None:
    readme = text_of(README)
    assert len(readme.split()) <= 900
    for name in messages.COMMANDS:
        assert f"catalogue {name}" in readme or name in {"status", "forget"}, name


def test_public_names_are_documented() -> None:
    for name in catalogue.__all__:
        thing = getattr(catalogue, name)
        assert thing.__doc__
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            assert member.startswith("_") or not callable(value) or value.__doc__, f"{name}.{member}"
    named = re.findall(r"^\.\. auto\w+:: ([\w.]+)$", text_of(ROOT / "docs/reference/python.md"), re.MULTILINE)
    assert len(named) > 20
    for name in named:
        assert resolve_name(name if name.startswith("catalogue.") else f"catalogue.{name}"), name
    assert dir(catalogue) == sorted([*catalogue.__all__, "__version__", "errors", "settings"])
    assert catalogue.__getattr__("settings") is resolve_name("catalogue.settings")  # without an import before
    assert catalogue.__version__ == version("commoncrawl-catalogue")


def test_links_have_targets() -> None:
    checked = 0
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page.name}: {link}"
            checked += 1
    assert checked > 5


def test_generated_parts_are_up_to_date() -> None:
    filled = runpy.run_path(str(ROOT / "docs/generated.py"))["filled"]
    pages = [path for path in (ROOT / "docs/reference").glob("*.md") if "<!-- generated: " in text_of(path)]
    assert len(pages) == 6
    for page in pages:
        text = text_of(page)
        assert filled(text) == text, "run: python docs/generated.py"


def test_documents_every_column_of_the_index_in_order() -> None:
    page = text_of(ROOT / "docs/reference/columns.md")
    rows = re.findall(r"^\| `(\w+)`( •)? \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == SCHEMA.names
    assert {name for name, marked in rows if marked} == set(CDX_COLUMNS)


def test_documents_every_json_field() -> None:
    page = text_of(ROOT / "docs/reference/outputs.md")
    named = set(re.findall(r"`(\w+)`", page.partition("| of | field |")[2]))
    shown = [json.loads(line) for line in page.splitlines() if line.startswith("{")]
    assert len(shown) >= 3
    assert {key for each in shown for key in each} <= named


PROMISES = text_of(ROOT / "docs/internals/promises.md")
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_FUNCTION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
_IN_SOAK = re.compile(r"^@pytest\.mark\.in_soak\n(?:@.*\n|[ )].*\n)*def (\w+)\(", re.MULTILINE)


@cache
def functions_of(path: str, named: re.Pattern[str] = _FUNCTION) -> set[str]:
    return {*named.findall(text_of(ROOT / path))}


def test_named_tests_exist() -> None:
    named = _NAMED.findall(PROMISES)
    assert len(named) > 150
    for path, test in named:
        assert (ROOT / path).exists(), path
        assert not test or (test.startswith("test_") and test in functions_of(path)), f"{path}::{test}"


def test_every_row_names_a_test_that_make_test_runs() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("|")]
    promises = [row for row in rows if not row.startswith(("| What may happen |", "|---"))]
    assert len(promises) > 70
    for row in promises:
        happens, promised, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert happens
        assert promised
        assert any(test not in functions_of(path, _IN_SOAK) for path, test in _NAMED.findall(tests)), row
        assert set(re.sub(r"`[^`]*`", "", tests)) <= set(", "), row
