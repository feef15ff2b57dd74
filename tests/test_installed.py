"""The wheel is enough: without extras the demo and queries run, and errors name the missing extra."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.amounts import in_part
from tests.support.canaries import ENVIRONMENT

PLAIN = os.environ.get("CATALOGUE_TEST_PLAIN")
pytestmark = pytest.mark.skipif(PLAIN is None, reason="CATALOGUE_TEST_PLAIN is not set; make hold sets it")
BIN = Path(PLAIN or "") / "bin"
URL = ("https://shop.example.com/", "--crawl", "CC-MAIN-2022-05")
MISSING = [
    ("serve", "serve"),
    ("mcp", "mcp"),
    ("s3", "harvest", "--crawl", "CC-MAIN-2022-05", "--data", "other", "--source", "s3://commoncrawl/"),
    ("s3", "fetch", *URL, "--output", "s3://bucket/found.warc.gz"),
    ("dask", "query", *URL, "--scheduler", "tcp://127.0.0.1:1"),
    ("iceberg", "export", "iceberg", "lake"),
]
"""An extra, and a command that needs it."""
RUN_ALL = """
import json, sys
from catalogue.cli.app import entry
from catalogue.errors import CatalogueError
for words in json.loads(sys.argv[1]):
    try:
        entry.main(words, standalone_mode=False)
    except CatalogueError as error:
        print(error.exit_status, error)
"""
"""One process for all commands, because most of the time of each is its start."""


def run(home: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment; nothing of this one is visible."""
    return subprocess.run(
        [BIN / words[0], *words[1:]],
        cwd=home,
        env={**ENVIRONMENT, "HOME": str(home), "PATH": os.defpath, "TMPDIR": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def demo(home: Path) -> str:
    """Return the output of the demo, whose folder is kept."""
    ran = run(home, "commoncrawl-catalogue", "demo", "--keep")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def settings(demo: str) -> dict[str, str]:
    """Return the settings with which commands use the folder of the demo."""
    (found,) = re.findall(r"--source (\S+) --data (\S+)\n", demo)
    return dict(zip(["CATALOGUE_SOURCE", "CATALOGUE_DATA"], found, strict=True))


def test_demo_runs(demo: str) -> None:
    for shown in ("$ catalogue harvest", "https://www.example.com/", ">>> found.to_pandas()"):
        assert shown in demo
    assert "Error" not in demo


def test_version_has_one_name(home: Path) -> None:
    version, same = (run(home, name, "--version").stdout for name in ("catalogue", "commoncrawl-catalogue"))
    assert re.fullmatch(r"catalogue, version \d\S+\n", version)
    assert same == version


def test_both_indexes_return_a_url(home: Path, settings: dict[str, str]) -> None:
    rows: dict[str, Sequence[object]] = {}
    for index in ("columnar", "cdx"):
        ran = run(home, "catalogue", "query", *URL, "--index", index, **settings)
        assert ran.returncode == 0, ran.stderr
        assert re.fullmatch("2 pages in .*\n", ran.stderr)  # the kept folder has the kept source
        rows[index] = sorted(ran.stdout.splitlines())
    assert rows["columnar"] == rows["cdx"]


@in_part(3)
@pytest.mark.parametrize(
    ("form", "shown"),
    [("--text", "Home juniper"), ("--markdown", "[Home](/)"), ("--links", "shop.example.com/nook/")],
)
def test_gets_a_page(home: Path, settings: dict[str, str], form: str, shown: str) -> None:
    ran = run(home, "catalogue", "get", URL[0], form, **settings)
    assert ran.returncode == 0, ran.stderr
    assert shown in ran.stdout
    assert "200 OK, text/html" in ran.stderr


def test_errors_name_missing_extras(home: Path, settings: dict[str, str]) -> None:
    ran = run(home, "python", "-c", RUN_ALL, json.dumps([words for _, *words in MISSING]), **settings)
    lines = ran.stdout.splitlines()
    assert len(lines) == len(MISSING), ran.stdout + ran.stderr
    for line, (extra, *_) in zip(lines, MISSING, strict=True):
        assert re.fullmatch(rf"2 [^;]+; run: [^;]* install .*'commoncrawl-catalogue\[{extra}\]'", line)


def test_serve_names_the_missing_extra_in_one_sentence(home: Path) -> None:
    ran = run(home, "catalogue", "serve")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(r"catalogue: serving needs \w+; run: .*'commoncrawl-catalogue\[serve\]'\n", ran.stderr)
