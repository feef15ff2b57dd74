"""The folder of an Iceberg table: updated, interrupted, with other files."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.metadata_db.lake_files import LakeFile
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.lakes import export, plain, write_file
from tests.support.mirrors import files_in

LOCATION = "https://example.com/"


def paths(table: Any) -> set[str]:
    return {task.file.file_path.removeprefix(LOCATION) for task in table.scan().plan_files()}


def test_new_snapshot_reuses_unchanged_manifests(files: list[LakeFile], tmp_path: Path) -> None:
    path = tmp_path / "table"
    crawls = sorted({file.crawl for file in files})
    first = [file for file in files if file.crawl != crawls[0]]
    removed, *rest = files
    export(path, first, LOCATION)
    old, before = plain(path), files_in(path)
    export(path, files, LOCATION)
    new = plain(path)
    assert old.metadata.current_snapshot_id == new.metadata.snapshots[0].snapshot_id
    assert (paths(old), paths(new)) == ({file.path for file in first}, {file.path for file in files})
    (snapshot,) = old.metadata.snapshots
    for manifest in snapshot.manifests(old.io):
        assert manifest.manifest_length == Path(manifest.manifest_path.removeprefix("file://")).stat().st_size
    assert str(new.metadata.snapshots[1].summary.operation.value) == "append"
    added = files_in(path).keys() - before.keys()
    assert {name for name in added if "/CC-" in name} == {name for name in added if crawls[0] in name}
    assert sum(crawls[0] in name for name in added) == 1
    assert all(files_in(path)[name] == body for name, body in before.items() if "hint" not in name)

    export(path, rest, LOCATION)
    changed = plain(path)
    assert paths(changed) == {file.path for file in rest}
    snapshot = changed.metadata.snapshots[2]
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"
    assert snapshot.summary["deleted-data-files"] == "1"
    (manifest,) = [each for each in snapshot.manifests(changed.io) if each.added_snapshot_id == snapshot.snapshot_id]
    entries = manifest.fetch_manifest_entry(changed.io, discard_deleted=False)
    statuses = {entry.data_file.file_path: entry.status for entry in entries}
    assert statuses.pop(LOCATION + removed.path).name == "DELETED"
    assert {status.name for status in statuses.values()} <= {"EXISTING"}
    assert (paths(old), paths(new)) == ({file.path for file in first}, {file.path for file in files})

    export(path, [file for file in files if file.crawl == crawls[-1]], LOCATION)
    assert {path.split("crawl=")[1].split("/")[0] for path in paths(plain(path))} == {crawls[-1]}
    export(path, files, LOCATION)
    assert paths(plain(path)) == {file.path for file in files}


def test_writes_nothing_without_changes_and_reports_missing_files(files: list[LakeFile], tmp_path: Path) -> None:
    first = export(tmp_path / "table", files, LOCATION)
    before = files_in(tmp_path)
    assert export(tmp_path / "table", files, LOCATION) == first
    assert files_in(tmp_path) == before
    export(tmp_path / "table", files, "s3a://elsewhere/")
    found = {task.file.file_path for task in plain(tmp_path / "table").scan().plan_files()}
    assert found == {f"s3a://elsewhere/{file.path}" for file in files}
    partial = plain(export(tmp_path / "table", files, LOCATION, ["half of it"])).metadata
    for noted in (partial.properties, partial.current_snapshot().summary):
        assert json.loads(noted["catalogue.missing"]) == ["half of it"]
    assert "catalogue.missing" not in plain(export(tmp_path / "table", files, LOCATION)).metadata.properties


def test_columns_keep_their_field_ids(files: list[LakeFile], tmp_path: Path) -> None:
    def having(name: str, kind: str) -> list[LakeFile]:
        rest = (1, 1, 1, ("url_surtkey", name), ("string", kind), True, "a", "b", True, (4,))
        return [*files, LakeFile("zz/crawl=CC-MAIN-2030-01/subset=warc/x.parquet", "CC-MAIN-2030-01", "warc", *rest)]

    numbers = []
    for some in (having("newer", "int64"), files, having("newest", "double"), having("newer", "string")):
        export(tmp_path, some, LOCATION)
        numbers.append({field.name: field.field_id for field in plain(tmp_path).schema().fields})
    known = numbers[1]
    assert all({name: each[name] for name in known} == known for each in numbers)
    others = [each[name] for each in numbers for name in each.keys() - known.keys()]
    assert len(set(others)) == 3
    assert min(others) > max(known.values())


def test_removed_columns_stay_in_older_snapshots(tmp_path: Path) -> None:
    one = write_file(tmp_path, "CC-MAIN-2030-01", 1, ["a"], score=[7])
    two = write_file(tmp_path, "CC-MAIN-2030-05", 1, ["a"])
    for files in ([one], [two], [one, two]):
        export(tmp_path / "table", files, f"file://{tmp_path}/")
        table = plain(tmp_path / "table")
        first = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id)
        assert first.to_arrow().select(["url_surtkey", "score"]).to_pylist() == [{"url_surtkey": "a", "score": 7}]
        assert table.scan().to_arrow().num_rows == len(files)
    assert table.scan("score = 7", ("crawl", "score")).to_arrow().num_rows == 1


def test_continues_after_an_interrupted_export(files: list[LakeFile], tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "table"
    export(whole, files, LOCATION)
    # Before a version has its name there is at most the lock file.
    copytree(whole, path)
    (path / "metadata/version-hint.text").unlink()
    (path / "metadata/v1.metadata.json").rename(path / "metadata/.v1.metadata.json.part")
    (path / ".export.lock").touch()
    export(path, files, LOCATION)
    assert paths(plain(path)) == {file.path for file in files}
    # Then readers that list the folder see it; others see it after the hint is written.
    export(path, files[1:], LOCATION)
    (path / "metadata/version-hint.text").write_text("1")
    assert export(path, files[1:], LOCATION) == path / "metadata/v2.metadata.json"
    assert (path / "metadata/version-hint.text").read_text() == "2"
    assert paths(plain(path)) == {file.path for file in files[1:]}


@pytest.mark.parametrize(
    ("there", "output"),
    [
        ("file", "file"),
        ("folder/mine.txt", "folder"),
        ("folder/metadata/00000-abc.metadata.json", "folder"),
        *(("a", name) for name in ("a#b", "a?b", "a\nb")),  # addresses cannot have these names
    ],
)
def test_refuses_other_files_and_names(there: str, output: str, files: list[LakeFile], tmp_path: Path) -> None:
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(QueryError, match="choose another path"):
        export(tmp_path / output, files, LOCATION)
    assert files_in(tmp_path) == {there: b"mine"}


def test_refuses_damaged_and_moved_tables(files: list[LakeFile], tmp_path: Path) -> None:
    export(tmp_path / "damaged", files, LOCATION).write_text("{")
    with pytest.raises(QueryError, match="is damaged"):
        export(tmp_path / "damaged", files, LOCATION)
    export(tmp_path / "one", files, LOCATION)
    moved = (tmp_path / "one").rename(tmp_path / "other")
    before = files_in(moved / "metadata")
    with pytest.raises(QueryError, match="its addresses are absolute"):
        export(moved, files, LOCATION)
    assert files_in(moved / "metadata") == before


def test_command(asking: Command, tmp_path: Path) -> None:
    from catalogue.export.iceberg import TableFolder

    words = ("export", "iceberg", "table")
    with TableFolder(tmp_path / "table").writing():
        busy = asking(*words)
    assert busy.status == 75
    assert busy.err.startswith("catalogue: another process writes to")
    ran = asking(*words, "--crawl", "latest", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.json()["files"] == len(paths(plain(tmp_path / "table")))
    assert len(ran.json()["crawls"]) == 1

    ran = asking(*words, "--location", "s3a://commoncrawl")
    assert ran.status == 0
    assert {file.partition("cc-index/")[0] for file in paths(plain(tmp_path / "table"))} == {"s3a://commoncrawl/"}


def test_command_reports_missing_files(command: Command, tmp_path: Path, mirror: Path, whole_crawls: list[str]) -> None:
    copytree(mirror, tmp_path / "source")
    min((tmp_path / "source").rglob(f"crawl={whole_crawls[0]}/subset=warc/*.parquet")).unlink()
    here = Command(command.data, str(tmp_path / "source"), tmp_path)
    assert here("harvest", "--crawl", whole_crawls[0]).status == 1
    ran = here("export", "iceberg", "table", "--quiet")
    assert ran.status == 1
    assert "it is incomplete: 1 of the" in ran.err
    (message,) = json.loads(plain(tmp_path / "table").metadata.properties["catalogue.missing"])
    assert message in ran.err
    with (
        catalogue_in(tmp_path, here.source, data=here.data) as cat,
        pytest.warns(IncompleteAnswer, match="1 of the"),
    ):
        assert cat.iceberg().scan().count() > 0
