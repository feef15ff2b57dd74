"""What is documented is true: the README's transcripts are what the commands print, and nothing is left out."""

import re
import shlex
from pathlib import Path

import pytest

import catalogue
from catalogue.cli.app import _Commands
from catalogue.demo import LoopbackServer, Miniature
from tests.commands import Command, ended
from tests.test_layers import ORDER

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TIMES = re.compile(r"\b\d+\.\d s\b")


def transcripts() -> list[tuple[str, str]]:
    """Commands of the README with what follows them."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for command, output in re.findall(r"\$ (catalogue .*)\n((?:(?!\$ ).*\n)*)", block):
            found.append((command, output))
    return found


def test_the_readmes_transcripts_are_real(miniature: Miniature, tmp_path: Path) -> None:
    checked = 0
    with LoopbackServer(miniature.folder) as server:
        command = Command(Path("data"), server.url, tmp_path)
        for words, expected in transcripts():
            with command.start_in_one(*shlex.split(words)[1:]) as process:
                printed = ended(process).out.replace(f"{tmp_path.resolve()}/", "")
            assert TIMES.sub("", printed) == TIMES.sub("", expected), words
            checked += 1
    assert checked >= 7


def test_the_readme_is_short_and_names_every_command() -> None:
    assert len(README.splitlines()) <= 150
    for name in _Commands.homes:
        assert f"catalogue {name}" in README or name in {"status", "forget"}, name


def test_the_architecture_lists_the_modules_in_their_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert re.findall(r"^\|[^|]*\| `(\w+)` \|", text, re.MULTILINE) == ORDER


@pytest.mark.parametrize("name", catalogue.__all__)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(catalogue, name)
    assert thing.__doc__
    for member, value in vars(thing).items() if isinstance(thing, type) else ():
        if not member.startswith("_") and callable(value):
            assert value.__doc__, f"{name}.{member}"


def test_links_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page.name}: {link}"
