"""Remote outputs, in a store that fails; tests.source.test_s3_end_to_end writes to a bucket."""

import random
import socket
from pathlib import Path

import fsspec
import pytest

from catalogue.errors import OutputFailed, QueryError
from catalogue.output.open_output import open_folder
from catalogue.records.record import Record
from tests.support.fetched import check
from tests.support.forms import FORMS, Flaky, copied, elsewhere, fill, sixty_records, urls_in, urls_of

records = pytest.fixture(scope="module")(sixty_records)
away = pytest.fixture(elsewhere)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", FORMS)
def test_remote_output_equals_local_output(records: list[Record], tmp_path: Path, away: str, form: str) -> None:
    output, most = f"{away}/{FORMS[form]}", None if form == "payload" else 20_000
    names = fill(output, form, records[:30], tmp_path / "cache", most)
    before = copied(away, tmp_path / "before")
    assert urls_in(before, form, names) == urls_of(records[:30])
    names = fill(output, form, records[:40], tmp_path / "cache", most)
    assert urls_in(copied(away, tmp_path / "same"), form, names) == urls_of(records[:40])
    names = fill(output, form, records, tmp_path / "another machine", most)
    after = copied(away, tmp_path / "after")
    assert urls_in(after, form, names) == urls_of(records)
    names = fill(output, form, records, tmp_path / "cache", most)  # which reads the ledger of the other machine
    assert urls_in(copied(away, tmp_path / "last"), form, names) == urls_of(records)
    last, cached = tmp_path / "last", (tmp_path / "cache").rglob("*")
    assert {file.relative_to(after) for file in after.rglob("*")} == {
        file.relative_to(last) for file in last.rglob("*")
    }
    read_again = {"index.jsonl"} if form == "payload" else set()
    assert {each.name for each in cached if each.is_file()} == {f"{FORMS[form]}.ledger", *read_again}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", FORMS)
def test_failing_remote_loses_nothing(records: list[Record], tmp_path: Path, away: str, form: str) -> None:
    chance = random.Random(form)
    most = None if form == "payload" else 20_000
    names, failed = list[str](), 0
    for attempt in range(10):
        share = 0.0 if attempt == 9 else 0.02 if form == "payload" else 0.3
        Flaky.fail = staticmethod(lambda _, share=share: chance.random() < share)
        try:
            names = fill(f"{away}/{FORMS[form]}", form, records, tmp_path / "cache", most)
        except OutputFailed:
            failed += 1
        there = copied(away, tmp_path / f"{attempt}")
        if (index := there / "out/index.jsonl").exists():  # it never lists a missing file
            urls_in(there, form, ["out/index.jsonl"])
        elif form != "payload":
            whole = [file.name for file in there.glob("out-*")]
            assert max(urls_in(there, form, whole).values(), default=1) == 1
        assert index.exists() or attempt < 9 or form != "payload"
    assert failed > 0
    assert urls_in(tmp_path / "9", form, names) == urls_of(records)


def test_error_texts_of_remotes_are_not_repeated(records: list[Record], tmp_path: Path, away: str) -> None:
    Flaky.fail = staticmethod(lambda _: True)
    with pytest.raises(OutputFailed, match=r"cannot be written or read \(PermissionError\)") as raised:
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    assert "secret" not in str(raised.value)
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), True
    with pytest.raises(OutputFailed, match="does not have the size"):
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    Flaky.cut = False
    names = fill(f"{away}/out.warc.gz", "warc", [], tmp_path)  # nothing needs to be fetched again
    assert urls_in(copied(away, tmp_path / "there"), "warc", names) == urls_of(records)


def test_does_not_replace_remote_files(records: list[Record], tmp_path: Path, away: str) -> None:
    files, root = fsspec.url_to_fs(away)
    files.pipe_file(f"{root}/out-00000.warc.gz", b"precious")
    with pytest.raises(QueryError, match=r"out-00000\.warc\.gz was not written by this command"):
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    fill(f"{away}/other.warc.gz", "warc", records, tmp_path)
    with pytest.raises(QueryError, match=r"other.warc.gz.ledger is of another output"):
        fill(f"{away}/other.warc.gz", "warc", records, tmp_path, most=5)
    assert files.cat_file(f"{root}/out-00000.warc.gz") == b"precious"


def test_names_a_host_that_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"ftp://127.0.0.1:{server.getsockname()[1]}/x"
    refused = pytest.raises(OutputFailed, match=r"^ftp://127.0.0.1:\d+/x cannot be reached: Connection refused; check")
    with refused, open_folder(place, tmp_path / "cache"):
        pass


def test_file_url_is_a_folder(records: list[Record], tmp_path: Path) -> None:
    assert fill(f"file://{tmp_path}/out.warc.gz", "warc", records, tmp_path / "cache") == ["out.warc.gz"]
    check(tmp_path / "out.warc.gz")
