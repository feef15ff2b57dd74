"""Links under the names of temporary files: what they point to is neither written to nor replaced."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import catalogue
from catalogue.atomic_files import whole_file
from catalogue.errors import QueryError
from catalogue.records.record import Record
from tests.support.crawls import crawl_of, table
from tests.support.forms import FORMS, fill, sixty_records, urls_in, urls_of
from tests.support.served_records import harvest

Link = Callable[[Path, Path], None]
records = pytest.fixture(scope="module")(sixty_records)
SECRET = b"a file of the user"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture(params=[os.symlink, os.link])
def link(request: pytest.FixtureRequest) -> Link:
    found: Link = request.param
    return found


@pytest.mark.parametrize("name", [".out.warc.gz.part", "out.warc.gz.ledger"])
def test_output_rejects_links(records: list[Record], tmp_path: Path, secret: Path, link: Link, name: str) -> None:
    output = tmp_path / FORMS["warc"]
    planted = output.with_name(name.replace("out.warc.gz", output.name))
    link(secret, planted)
    with pytest.raises(QueryError, match=f"{planted} is a symbolic link"):
        fill(output, "warc", records[:5], tmp_path / "cache")
    assert secret.read_bytes() == SECRET
    planted.unlink()
    names = fill(output, "warc", records[:5], tmp_path / "cache")
    assert urls_in(tmp_path, "warc", names) == urls_of(records[:5])


def test_finished_output_that_became_a_link_is_refused(records: list[Record], tmp_path: Path, link: Link) -> None:
    output, elsewhere = tmp_path / FORMS["warc"], tmp_path / "elsewhere"
    fill(output, "warc", records[:5], tmp_path / "cache")
    before = output.read_bytes()
    output.rename(elsewhere)
    link(elsewhere, output)
    with pytest.raises(QueryError, match=f"{output} is a symbolic link"):
        fill(output, "warc", records[:9], tmp_path / "cache")
    assert elsewhere.read_bytes() == output.read_bytes() == before


def test_tables_of_records_replace_links(records: list[Record], tmp_path: Path, secret: Path, link: Link) -> None:
    output = tmp_path / FORMS["parquet"]
    for count in (5, 9):  # the second time finished files grow again
        link(secret, output.with_name(f".{output.name}.part.whole"))
        names = fill(output, "parquet", records[:count], tmp_path / "cache")
        assert urls_in(tmp_path, "parquet", names) == urls_of(records[:count])
    assert secret.read_bytes() == SECRET


def test_payloads_do_not_follow_links(records: list[Record], tmp_path: Path) -> None:
    output, elsewhere = tmp_path / FORMS["payload"], tmp_path / "elsewhere"
    fill(output, "payload", records[:5], tmp_path / "cache")
    elsewhere.mkdir()
    (output / ".payloads").symlink_to(elsewhere)
    before = elsewhere.stat().st_mtime_ns
    names = fill(output, "payload", records[:9], tmp_path / "cache")
    assert urls_in(tmp_path, "payload", names) == urls_of(records[:9])
    assert elsewhere.stat().st_mtime_ns == before


def test_complete_files_reject_links(tmp_path: Path, secret: Path, link: Link) -> None:
    output, planted = tmp_path / "found.csv", tmp_path / ".found.csv.part"
    link(secret, planted)
    with pytest.raises(QueryError, match=f"{planted} is a symbolic link"), whole_file(output):
        pass
    assert (secret.read_bytes(), output.exists()) == (SECRET, False)


def test_data_folder_follows_no_links(tmp_path: Path, secret: Path, link: Link) -> None:
    data, settings = harvest(crawl_of(tmp_path / "mirror", table(["com,example)/"])), tmp_path)
    place, ours = tmp_path / "snapshot", tmp_path / "ours"
    (data / "catalogue.duckdb").unlink()
    ours.mkdir()
    for folder, name in ((data, "captures.ducklake.new"), (ours, "pulling.part")):
        link(secret, folder / "catalogue.duckdb.new")
        link(secret, folder / name)
    with catalogue.open(data, settings=settings) as cat:
        cat.export_snapshot(place)
        cat.export_ducklake()
    with catalogue.open(ours, settings=settings) as cat:
        assert cat.pull(str(place)).files
    assert secret.read_bytes() == SECRET
    assert {path.name for path in data.iterdir() if path.is_file()} >= {"catalogue.duckdb", "captures.ducklake"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_output_rejects_files_of_other_users(records: list[Record], tmp_path: Path) -> None:
    output = tmp_path / FORMS["warc"]
    planted = output.with_name(f".{output.name}.part")
    planted.touch()
    os.chown(planted, 65534, 65534)
    with pytest.raises(QueryError, match="belongs to another user"):
        fill(output, "warc", records[:5], tmp_path / "cache")
    assert planted.read_bytes() == b""
