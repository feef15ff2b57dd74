"""``catalogue doctor``: what it reports of sources and installations, by ten requests at most."""

import json
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalogue.check.doctor import EXTRAS, Diagnosis, Observation
from catalogue.errors import RangeIgnored, Throttled, UnexpectedHtml, UnknownCrawl, Unreachable
from catalogue.source.open import credentials_from, environment_settings
from tests.cli.test_cli import sentence
from tests.support import canaries
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.fault_kinds import on_suffixes
from tests.support.faults import ALL_KINDS, SLOW, Fault, FaultServer, Kind, Script, always, only, seeded
from tests.support.miniatures import OLD
from tests.support.mirrors import files_in

ROOT = Path(__file__).parents[2]
MAX_REQUESTS = 10


def by_subject(observations: Iterable[Observation]) -> dict[str, Observation]:
    return {each.about: each for each in observations}


def diagnose(source: str, folder: Path, crawl: str | None = None) -> Diagnosis:
    with catalogue_in(folder, source) as cat:
        found = cat.doctor(crawl)
        assert (cat.requests, cat.bytes) == (found.requests, found.bytes)
    assert not (folder / "data").exists()
    return found


@pytest.fixture
def newest(mirror: Path) -> str:
    return max(path.name for path in (mirror / "crawl-data").glob("CC-MAIN-*"))


def test_source_without_defects(mirror: Path, newest: str, tmp_path: Path) -> None:
    with FaultServer(mirror) as server:
        found = diagnose(server.url, tmp_path)
        log = server.settle()
    assert found.failure is None
    assert found.requests == len(log) == 4
    assert found.bytes == sum(each.body_bytes_sent for each in log)
    seen = {about: each.seen for about, each in by_subject(found.source).items()}
    assert seen["manifest"].startswith(f"{newest}: ")
    assert seen["suffix ranges"] == seen["ranges"] == "honoured"
    assert seen["ETag"].startswith("strong")
    assert seen["clock"] == "as the source's"
    assert {"list of crawls", "writer", "footer", "page checksums", "speed"} <= seen.keys()
    lines = str(found).splitlines()  # as print() shows it
    assert lines[0].startswith("Diagnosis by 4 requests, ")
    assert [line.split("  ")[1] for line in lines[1:]] == [each.about for each in (*found.source, *found.here)]
    assert re.search(r"^  suffix ranges +honoured; a footer takes one request$", str(found), re.MULTILINE)


@pytest.mark.parametrize("era", ["oldest", "newest"])
def test_layout_agrees_with_pyarrow(mirror: Path, newest: str, tmp_path: Path, era: str) -> None:
    crawl = OLD if era == "oldest" else newest
    found = diagnose(str(mirror), tmp_path, crawl)
    assert found.failure is None
    at = by_subject(found.source)
    seen = {about: each.seen for about, each in at.items()}
    (path,) = mirror.rglob(f"crawl={crawl}/subset=warc/{seen['file'].partition(':')[0]}")
    footer = pq.read_metadata(path)
    assert seen["writer"] == footer.created_by
    assert f"{footer.num_rows:,} rows in {footer.num_row_groups} row groups" in seen["footer"]
    assert f"{footer.num_columns} columns" in seen["footer"]
    if era == "newest":
        assert (seen["bounds of keys"], seen["page index"]) == (f"footer: {footer.num_row_groups}", "yes")
        assert (seen["order"], seen["page checksums"]) == ("sorted", "yes")
        return
    assert (seen["page index"], seen["page checksums"]) == ("none", "none")
    if os.environ.get("CATALOGUE_TEST_MIRROR"):
        assert seen["bounds of keys"] == f"footer (signed): {footer.num_row_groups}"
        assert "other readers" in at["bounds of keys"].means
        assert seen["order"].startswith("zipped")
        assert "the CDX index usually answers" in at["order"].means
    else:  # our own miniature has no bounds
        assert seen["bounds of keys"] == f"missing: {footer.num_row_groups}"
        assert f"catalogue backfill --crawl {OLD}" in at["bounds of keys"].means
        assert "order" not in seen


@pytest.mark.parametrize(
    ("script", "about", "seen", "means"),
    [
        (on_suffixes(Kind.WHOLE_FILE), "suffix ranges", "ignored", "two requests instead of one"),
        (on_suffixes(Kind.OTHER_RANGE), "suffix ranges", "wrong: ", "two requests instead of one"),
        (always(Kind.WEAK_ETAG), "ETag", "weak", "are not cached"),
        (always(Kind.NO_ETAG), "ETag", "none", "by their size alone"),
        (only("collinfo.json", Kind.NOT_FOUND), "list of crawls", "not exist", "all"),
    ],
)
def test_sources_with_defects(mirror: Path, tmp_path: Path, script: Script, about: str, seen: str, means: str) -> None:
    with FaultServer(mirror, script=script) as server:
        found = diagnose(server.url, tmp_path, OLD)
        assert found.requests == server.requests <= MAX_REQUESTS
    observed = by_subject(found.source)[about]
    assert seen in observed.seen
    assert means in observed.means
    assert found.failure is None


@pytest.mark.parametrize(
    ("script", "failure", "requests"),
    [
        (always(Kind.DISCONNECT), Unreachable, 2),
        (always(Kind.BLOCKED), Throttled, 1),
        (always(Kind.SLOW_DOWN), Throttled, 2),
        (always(Kind.HTML_200), UnexpectedHtml, 2),
        (lambda r: Fault(Kind.WHOLE_FILE) if "range" in r.headers else None, RangeIgnored, 4),
    ],
)
def test_unusable_sources(
    mirror: Path, tmp_path: Path, script: Script, failure: type[Exception], requests: int
) -> None:
    with FaultServer(mirror, script=script) as server:
        found = diagnose(server.url, tmp_path, OLD)
        assert found.requests == server.requests == requests
    assert isinstance(found.failure, failure)
    assert str(found.failure) in [each.seen for each in found.source] or "ranges" in by_subject(found.source)
    assert by_subject(found.here)["store"].seen == f"{tmp_path / 'data/footers.sqlite'}: none yet"


@pytest.mark.parametrize("seed", range(3))
def test_makes_ten_requests_at_most_among_faults(mirror: Path, tmp_path: Path, seed: int) -> None:
    script = seeded(seed, 0.3, [kind for kind in ALL_KINDS if kind not in SLOW])
    with FaultServer(mirror, script=script) as server:
        try:
            found = diagnose(server.url, tmp_path, OLD)
        except UnknownCrawl:  # as a 404 says
            found = None
        assert server.requests <= MAX_REQUESTS
    assert found is None or found.requests == server.requests


def test_most_requests_of_a_working_source(mirror: Path, tmp_path: Path) -> None:
    """The newest listed crawl has no index yet, and suffix ranges are ignored."""
    crawls = json.loads((mirror / "collinfo.json").read_text())
    files = files_in(mirror)
    files["collinfo.json"] = json.dumps([crawls[0] | {"id": "CC-MAIN-2099-01"}, *crawls]).encode()
    with FaultServer(files, script=on_suffixes(Kind.WHOLE_FILE)) as server:
        found = diagnose(server.url, tmp_path)
        assert found.requests == server.requests == 7
        with pytest.raises(UnknownCrawl, match="has no columnar index of CC-MAIN-2099-01"):
            diagnose(server.url, tmp_path, "CC-MAIN-2099-01")
    assert found.failure is None
    assert "none of CC-MAIN-2099-01" in [each.seen for each in found.source]


def test_command_prints_no_secret_and_fits_80_columns(command: Command, mirror: Path) -> None:
    with FaultServer(mirror) as server:
        here = Command(command.data, server.url, command.home)
        ran = here("doctor", "--contact", f"{canaries.MARK}@data.example")  # where secrets are looked for
        assert server.requests <= MAX_REQUESTS
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    texts = [line for line in lines if not re.match(r"\s+(catalogue|/\S+|uv) .*(harvest|install) ", line)]
    assert max(len(line) for line in texts if max(map(len, line.split())) < 60) <= 80  # nor are names broken
    assert "  environment     https_proxy=http://127.0.0.1:9" in lines
    assert "  contact         set" in lines


def test_reports_the_installation_if_the_source_is_down_and_shortens_long_values(command: Command) -> None:
    with FaultServer({}) as server:
        here = Command(command.data, server.url, command.home)
    ran = here("doctor", "--quiet", SSL_CERT_DIR="x" * 7_000)
    assert (ran.status, "duckdb " in ran.out) == (75, True)
    assert "is the server running?" in sentence(ran)
    assert (len(ran.out) < 6_000, "SSL_CERT_DIR=x" in ran.out, "x…\n" in ran.out) == (True, True, True)
    ran = here("doctor", "--json")
    found = ran.json()
    assert (ran.status, found["requests"]) == (75, 1)
    assert found["failure"] in sentence(ran)
    assert {each["about"] for each in found["here"]} >= {"catalogue", "libraries", "store", "terminal"}
    assert {tuple(each) for each in found["here"] + found["source"]} == {("about", "seen", "means")}


def test_reports_the_package_of_the_same_name(command: Command) -> None:
    (command.home / "libraries/catalogue-2.0.10.dist-info").mkdir(parents=True)
    metadata = command.home / "libraries/catalogue-2.0.10.dist-info/METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: catalogue\nVersion: 2.0.10\n")
    libraries = os.pathsep.join([str(ROOT), str(command.home / "libraries")])
    ran = command.again("doctor", "--source", str(command.home), PYTHONPATH=libraries)
    assert "catalogue 2.0.10 of spaCy is here, too" in ran.out


def test_reports_a_store_that_cannot_be_opened_and_an_invalid_source(command: Command) -> None:
    ran = command("doctor", "--source", "gopher://x")
    assert (ran.status, "invalid source" in sentence(ran), "libraries" in ran.out) == (2, True, True)
    assert not command.data.exists()
    command.data.mkdir()
    (command.data / "footers.sqlite").write_bytes(b"no store at all " * 1000)
    ran = command("doctor", "--json")
    assert ran.status == 0
    (seen,) = [each["seen"] for each in ran.json()["here"] if each["about"] == "store"]
    assert seen.startswith("cannot be opened: ")


def test_knows_every_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert EXTRAS.keys() == declared.keys() - {"all", "docs", "fuzz", "test"}
    for name, (needs, _) in EXTRAS.items():
        assert {re.split(r"[>=\[]", line)[0] for line in declared[name]} >= {*needs} - {"distributed"}


@pytest.mark.parametrize(
    "writes",
    [
        *({"AWS_METADATA_SERVICE_TIMEOUT": "soon"}, {"AWS_CONFIG_FILE": "config"}),
        {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://stranger.example/x"},
    ],
)
def test_invalid_aws_settings_find_no_credentials(
    writes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore", reason="S3 is an extra")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("[default]\ncredential_process = /no/such/program\n")
    for name, value in writes.items():
        monkeypatch.setenv(name, value)
    assert credentials_from() is None


@pytest.mark.parametrize(
    "value", ["http://user:se/cret@proxy:3128", "user:se/cret@proxy:3128", "http://u:se://cret@proxy:3128"]
)
def test_passwords_are_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", value)
    shown = environment_settings()["https_proxy"]
    assert shown.endswith("proxy:3128")
    assert "cret" not in shown
