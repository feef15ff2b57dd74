"""Names from outside: each kind is checked in one place, which refuses names that lead elsewhere."""

import json
import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.capture import capture_of
from catalogue.commoncrawl.crawls import check_crawl_name, parse_collinfo, select_crawls, select_subsets
from catalogue.commoncrawl.datasets import (
    COMMON_CRAWL,
    check_name,
    define_dataset,
    index_file,
    is_path,
    manifest_path,
    parse_path_list,
)
from catalogue.errors import CatalogueError, DiskFailed
from catalogue.harvest.snapshot import SnapshotFile, pack_manifest, unpack_manifest
from catalogue.source.byte_ranges import SuffixRange
from catalogue.source.http import HttpSource
from catalogue.source.open import FolderSource
from catalogue.store.database import Store
from tests.support.commands import Command
from tests.support.faults import FaultServer

GOOD = "crawl-data/CC-MAIN-2022-05/segments/1642320299852.23/warc/CC-MAIN-20220116093137-20220116123137-00000.warc.gz"
LEADING_AWAY = [f"{start}evil.example/x" for start in ("//", "///", "https://", "HTTP://", "@", ".", ":80@")]
LEADING_AWAY += [f"{blank}http://evil.example/x" for blank in ("\t", " ")]
LEADING_AWAY += ["http://169.254.169.254/latest/meta-data/", "s3://other/x", "file:///etc/passwd"]
LEADING_AWAY += ["\\\\evil.example\\x", "x`id`", "$(id)", "-rf", "~root/x", "a/../../x", "a//b", "\ud800", "x" * 10_000]
LEADING_AWAY += ["/etc/passwd", "../../etc/passwd", "..", ".", "", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd"]
LEADING_AWAY += ["x?y=z", "x#y", "x\r\nX-Injected: 1", "x\0", "x\n", "\u202ex", "\uff0e\uff0e/x", "x*", "[x]", "x';--"]
LEADING_AWAY += ['x"', "a/" * 5000 + "x"]
"""Names that leave a host, a folder or a line, or that a shell, a glob or SQL would take for something else."""


def _refused(read: Callable[[str], object]) -> Callable[[str], bool]:
    def refused(name: str) -> bool:
        try:
            read(name)
        except CatalogueError:
            return True
        return False

    return refused


def _in_collinfo(name: str) -> bool:
    data = json.dumps([{"id": name, "cdx-api": name}, {"id": "CC-MAIN-2022-05"}]).encode()
    return [*parse_collinfo(data)] == ["CC-MAIN-2022-05"]


def _in_snapshot(name: str) -> bool:
    """Return whether a manifest that has a name as a crawl, as a digest or as a path is refused."""
    manifest = json.loads(pack_manifest([SnapshotFile("CC-MAIN-2022-05", 1, "0" * 64)]))
    unpack = _refused(lambda data: unpack_manifest(data.encode(), ""))
    assert not unpack(json.dumps(manifest))
    others = ({"crawl": name}, {"sha256": name})
    return all(unpack(json.dumps(manifest | {"files": [manifest["files"][0] | other]})) for other in others)


DOORS: dict[str, Callable[[str], bool]] = {
    "crawl": _refused(check_crawl_name),
    "manifest": _refused(manifest_path),
    "crawls of the source": _in_collinfo,
    "crawls that were typed": _refused(lambda name: select_crawls([name], [])),
    "subset": _refused(lambda name: select_subsets([name])),
    "index file": lambda name: index_file(name) is None,
    "index file, its end": lambda name: index_file(f"crawl=CC-MAIN-2022-05/subset=warc/{name}.parquet") is None,
    "index file, its subset": lambda name: index_file(f"crawl=CC-MAIN-2022-05/subset={name}/a.parquet") is None,
    "archive": _refused(lambda name: capture_of(_row(name))),
    "archive below its root": _refused(lambda name: capture_of(_row(f"crawl-data/{name}"))),
    "name of a table": _refused(check_name),
    "manifest of a table": _refused(lambda name: define_dataset("hosts", "host", manifest=name)),
    "snapshot": _in_snapshot,
}
"""Functions that read names, and return whether a name is refused."""
HARMLESS = {
    # They are quoted in addresses, and are no part of a command.
    **{door: {name for name in LEADING_AWAY if is_path(name)} for door in ("manifest of a table", "archive")},
    "archive below its root": {name for name in LEADING_AWAY if is_path(f"crawl-data/{name}")},
    "index file, its end": {"x" * 10_000},
    "index file, its subset": {"x" * 10_000},
    "crawls that were typed": {"..", "."},
}
"""Names that are accepted because they are harmless there; ``..`` alone is the range of all crawls."""


def _row(name: str) -> dict[str, object]:
    return {"warc_filename": name, "warc_record_offset": 1, "warc_record_length": 1}


@pytest.mark.parametrize("door", DOORS)
def test_rejects_paths_that_leave_the_source(door: str) -> None:
    used = {name for name in LEADING_AWAY if not DOORS[door](name)}
    assert used <= HARMLESS.get(door, set())


def test_accepts_valid_paths() -> None:
    assert not DOORS["archive"](GOOD)
    assert not DOORS["crawl"]("CC-MAIN-2022-05")
    assert not DOORS["name of a table"]("hosts")
    assert not DOORS["subset"]("warc")
    assert COMMON_CRAWL.file("crawl=CC-MAIN-2022-05/subset=warc/part-0.gz.parquet")


def test_path_lists_reject_them_too() -> None:
    for name in LEADING_AWAY:
        with suppress(CatalogueError):
            for path in parse_path_list(name.encode(errors="replace"), source="https://data.example"):
                assert not path.startswith("/")
                assert "//" not in path
                assert not {".", ".."} & set(path.split("/"))
                assert "://" not in path
                assert path.isprintable()
                assert len(path) <= 1024


def test_locks_have_fixed_names(tmp_path: Path) -> None:
    with Store(tmp_path / "data/footers.sqlite", create=True) as store:
        for name in [*LEADING_AWAY, "../CC-MAIN-2022-05", "CC-MAIN-2022-05/.."]:
            with pytest.raises((ValueError, DiskFailed), match=r"is not the name|too long"), store.harvesting(name):
                pass
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
    assert all(path.name.startswith("footers.sqlite") for path in (tmp_path / "data").iterdir())


def test_sources_resolve_paths_below_their_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that passes all other checks is still resolved below the address of the source."""
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "source").mkdir()
    (tmp_path / "x").write_bytes(b"secret")
    with (
        closing(socket.create_server(("127.0.0.2", 0))) as elsewhere,
        FaultServer({}) as server,
        closing(HttpSource(server.url, user_agent="test", connections=1)) as source,
    ):
        elsewhere.setblocking(False)  # noqa: FBT003 - the only way to say it
        port = elsewhere.getsockname()[1]
        names = [name.replace("evil.example", f"127.0.0.2:{port}") for name in LEADING_AWAY if len(name) < 1000]
        for name in [*names, "../x", str(tmp_path / "x")]:
            for each in (source, FolderSource(tmp_path / "source")):
                with pytest.raises((CatalogueError, UnicodeEncodeError)):
                    each.get(name, SuffixRange(1))
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
        hosts = {exchange.headers["host"] for exchange in server.log}
        assert hosts == {server.url.removeprefix("http://").rstrip("/")}
        assert not any("x-injected" in exchange.headers for exchange in server.log)


WRITTEN = ["found.jsonl", "trailing.", "two\nlines.jsonl", "\x1b[2Jescape.jsonl", "\u202eright.jsonl", "-rf"]
WRITTEN += ["../beside.jsonl", "there/../found.jsonl", "there/inside.jsonl", "link.jsonl", "nowhere.jsonl", "/dev/null"]
WRITTEN += ["a" * 220]
OUTPUTS = dict.fromkeys(WRITTEN, 0) | {"a" * 255: 74, "a" * 300: 74}
OUTPUTS |= dict.fromkeys(["there", "..", "none/found.jsonl", "there.jsonl/found.jsonl"], 2)
"""Names of outputs, with the exit status of the command: it writes a file of just that name, or prints an error."""
MORE = ["FOUND.jsonl", "con.jsonl", "nul", " blank ", "tab\t.jsonl", "'quoted';--.jsonl", "*.jsonl", "~"]
MORE += ["there/", ".", "/"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "deep"
    (folder / "there").mkdir(parents=True)
    for suffix in ("jsonl", "warc.gz"):
        (folder / f"there.{suffix}").write_text("precious")
        (folder / f"link.{suffix}").symlink_to(f"there/target.{suffix}")
        (folder / f"nowhere.{suffix}").symlink_to(f"there/none.{suffix}")
    return folder


def _there(home: Path) -> set[Path]:
    return {path for path in home.parent.rglob("*") if "cache" not in path.parts}


def test_output_has_the_given_name_or_none(home: Path, asking: Command, crawl: str) -> None:
    command = Command(asking.data, asking.source, home)
    for name, status in OUTPUTS.items():
        before = _there(home)
        ran = command("query", "example.com/*", "--crawl", crawl, "--limit", "1", "--format", "jsonl", "-o", name)
        assert (ran.status, "Traceback" in ran.err) == (status, False), (name, ran)
        assert _there(home) - before <= {Path(os.path.normpath(home / name)), (home / name).resolve()}, name
        assert status or (home / name).exists(), name
        assert (home / "there.jsonl").read_text() == "precious"


def test_record_output_has_the_given_name_or_none(
    home: Path, harvested: Catalogue, crawl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    rows = harvested.captures("*.com", crawls=crawl, limit=1).to_arrow()
    # In the form that parses no documents, for which a process would be started.
    for name in (each.replace(".jsonl", ".warc.gz") for each in [*OUTPUTS, *MORE, "nul\0.jsonl"]):
        before = _there(home)
        failed: Exception | None = None
        try:
            harvested.fetch(rows, name, form="warc")
        except CatalogueError as error:
            failed = error
        temporary = Path(os.path.normpath(home / name))
        made = {path.name for path in _there(home) - before}
        start = temporary.name.partition(".warc.gz")[0]
        assert all(each.removeprefix(".").startswith(start) for each in made), (name, made)
        assert (failed is None) is (temporary in _there(home) and temporary.is_file()), (name, failed)
        assert (home / "there.warc.gz").read_text() == "precious"
