"""What is documented is true: transcripts are what the commands print, and nothing is left out."""

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import click
import pytest

import catalogue
from catalogue.cli.app import _Commands, entry
from catalogue.demo import LoopbackServer, Miniature
from tests.commands import Command, ended
from tests.test_layers import ORDER

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/tutorial.md"
PAGES = sorted(ROOT.glob("docs/**/*.md"))
TIMES = re.compile(r"\b\d+\.\d s\b")
RUN = re.compile(r"^```(console|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""What is run and compared. Other blocks, ``sh`` and ``python``, need what a test has not, such as a cluster."""
COMMAND = re.compile(r"\$ (catalogue .*)\n((?:(?!\$ ).*\n)*)")
FILE = re.compile(r"```{code-block} text\n:caption: (\S+)\n\n(.*?)```", re.DOTALL)
"""One that the reader writes."""


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
            with command.start_in_one(*shlex.split(words)[1:]) as process:
                printed = ended(process).out.replace(f"{command.home.resolve()}/", "")
            assert TIMES.sub("", printed) == TIMES.sub("", expected), words
            done += 1
    return done


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


@pytest.fixture(scope="module")
def source(miniature: Miniature) -> Iterator[str]:
    with LoopbackServer(miniature.folder) as server:
        yield server.url


@pytest.fixture(scope="module")
def taught(source: str, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Where the tutorial ends; to be copied."""
    command = Command(Path("data"), source, tmp_path_factory.mktemp("tutorial"))
    assert follow(TUTORIAL, command) >= 18
    return command


def test_the_readmes_transcripts_are_real(source: str, tmp_path: Path) -> None:
    assert follow(README, Command(Path("data"), source, tmp_path)) >= 7


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != TUTORIAL and RUN.search(text_of(page))],
    ids=lambda page: page.stem,
)
def test_pages_go_on_where_the_tutorial_ends(page: Path, taught: Command, tmp_path: Path) -> None:
    copytree(taught.home / "data", tmp_path / "data")
    assert follow(page, replace(taught, home=tmp_path))


def test_commands_that_are_not_run_have_the_options_they_are_shown_with() -> None:
    checked = 0
    for page in [README, *PAGES]:
        for block in re.findall(r"^```sh\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE):
            for line in re.findall(r"^catalogue (.*)", block, re.MULTILINE):
                command: click.Command | None = entry
                words = shlex.split(line)
                while isinstance(command, click.Group):
                    command = command.get_command(click.Context(command), words.pop(0))
                assert command, line
                command.make_parser(click.Context(command)).parse_args(words)
                checked += 1
    assert checked > 20


def test_the_proxy_overwrites_every_header_that_addresses_are_made_from() -> None:
    code = "".join(text_of(path) for path in (ROOT / "catalogue/server").glob("*.py"))
    heeded = {"host", *re.findall(r'"(x-forwarded-\w+)"', code)}
    overwritten = re.findall(r"proxy_set_header (\S+) ", text_of(ROOT / "docs/how-to/server.md"))
    assert heeded == {name.lower() for name in overwritten}


def test_python_that_is_not_run_can_be_read() -> None:
    blocks = [
        block for page in [README, *PAGES] for block in re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)
    ]
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "page", "exec")


def test_the_readme_is_short_and_names_every_command() -> None:
    readme = text_of(README)
    assert len(readme.splitlines()) <= 150
    for name in _Commands.homes:
        assert f"catalogue {name}" in readme or name in {"status", "forget"}, name


def test_the_architecture_lists_the_modules_in_their_order() -> None:
    assert re.findall(r"^\|[^|]*\| `(\w+)` \|", text_of(ROOT / "ARCHITECTURE.md"), re.MULTILINE) == ORDER


@pytest.mark.parametrize("name", catalogue.__all__)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(catalogue, name)
    assert thing.__doc__
    for member, value in vars(thing).items() if isinstance(thing, type) else ():
        if not member.startswith("_") and callable(value):
            assert value.__doc__, f"{name}.{member}"


def test_links_lead_somewhere() -> None:
    checked = 0
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page.name}: {link}"
            checked += 1
    assert checked > 5
