"""Formats of captures and records, in files and on standard output."""

import csv
import gzip
import io
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import catalogue
from catalogue.cli.row_writer import write
from tests.support.commands import Command
from tests.support.fetched import records_in

COLUMNS = "url,fetch_time,fetch_status,url_port"


@pytest.fixture(scope="module")
def expected(harvested: catalogue.Catalogue) -> pa.Table:
    return harvested.captures("*.example.com", columns=COLUMNS.split(",")).to_arrow()


def read(path: Path) -> pa.Table:
    """Read a file of captures as other programs do."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        assert pd.read_feather(path).shape == pa.ipc.open_file(path).read_all().shape
        return feather.read_table(path)
    if path.suffix == ".arrows":
        return pa.ipc.open_stream(path.read_bytes()).read_all()
    plain = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind in {"csv", "tsv"}:
        options = pa_csv.ParseOptions(delimiter="," if kind == "csv" else "\t")
        return pa_csv.read_csv(io.BytesIO(plain), parse_options=options)
    if kind == "json":
        assert pd.read_json(path, dtype=False).shape[0] == len(json.loads(plain))
        return pa.Table.from_pylist(json.loads(plain))
    if kind == "jsonl":
        return pa.Table.from_pylist([json.loads(line) for line in plain.splitlines()])
    lines = plain.decode().splitlines()
    return pa.table({"url": [json.loads(line.split(" ", 2)[2])["url"] for line in lines] if kind == "cdxj" else lines})


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "name",
    ["a.parquet", "a.arrow", "a.arrows", "a.json", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.tsv.gz", "a.cdxj", "a.txt"],
)
def test_writes_every_format(asking: Command, expected: pa.Table, tmp_path: Path, name: str) -> None:
    columns = {"a.txt": "url", "a.cdxj": "url_surtkey,fetch_time,url"}.get(name, COLUMNS)
    ran = asking("query", "*.example.com", "-o", name, "--columns", columns)
    assert (ran.status, ran.out) == (0, ""), ran.err
    found = read(tmp_path / name)
    urls, expected_urls = found.column("url").to_pylist(), expected.column("url").to_pylist()
    if name == "a.txt":  # without times, rows with equal keys are in another order
        urls, expected_urls = sorted(urls), sorted(expected_urls)
    assert urls == expected_urls
    if name.endswith(("parquet", "arrow", "arrows")):
        assert found == expected
    elif name not in {"a.txt", "a.cdxj"}:
        assert found.column_names == expected.column_names
        assert found.column("fetch_status").to_pylist() == expected.column("fetch_status").to_pylist()
    if name == "a.jsonl.gz":
        times = expected.column("fetch_time").to_pylist()
        assert found.column("fetch_time").to_pylist() == [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times]
        assert f"{len(expected):,} pages" in ran.err
    assert [path.name for path in tmp_path.glob("*a.*")] == [name]


def test_writes_valid_files_without_rows(asking: Command, tmp_path: Path) -> None:
    for name in ("a.json", "a.arrow", "a.csv.gz"):
        assert asking("query", "nowhere.example", "-o", name, "--columns", "url").status == 0
    assert json.loads((tmp_path / "a.json").read_text()) == []
    assert feather.read_table(tmp_path / "a.arrow").column_names == ["url", "crawl", "subset"]
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == b"url,crawl,subset\n"


def test_csv_quotes_only_where_needed(tmp_path: Path) -> None:
    texts = ["plain", "a,b", 'say "yes"', "two\nlines", "tab\there", "", None, " x"]
    rows = pa.table({"k": [f"k{n}" for n in range(len(texts))], "n": [1] * len(texts), "text": texts})
    (tmp_path / "source").mkdir()
    pq.write_table(rows, tmp_path / "source" / "f")
    command = Command(tmp_path / "data", str(tmp_path / "source"), tmp_path)
    assert command("harvest", "--table", "t", "--key", "k", "f").status == 0
    requested = ["query", "*", "--table", "t"]
    assert command(*requested, "-o", "a.csv").status == command(*requested, "-o", "a.tsv").status == 0
    assert (tmp_path / "a.csv").read_bytes().decode() == (
        'k,n,text\nk0,1,plain\nk1,1,"a,b"\nk2,1,"say ""yes"""\nk3,1,"two\nlines"\n'
        'k4,1,tab\there\nk5,1,""\nk6,1,\nk7,1, x\n'
    )
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            assert [row["text"] for row in csv.DictReader(file, delimiter=delimiter)] == [text or "" for text in texts]
    one = command(*requested, "--columns", "text", "--format", "csv").out
    assert [row[0] for row in csv.reader(io.StringIO(one)) if row][1:] == [text or "" for text in texts]


def test_times_need_no_time_zones_of_the_system(tmp_path: Path) -> None:
    times = pa.array([0, 1_660_521_600_123, None], pa.timestamp("ms", "No/Where"))
    rows = pa.table({"fetch_time": times, "other": times})
    write(rows.to_batches(), rows.schema, "csv", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[1:] == [
        "1970-01-01T00:00:00Z,1970-01-01T00:00:00.000Z",
        "2022-08-15T00:00:00.123Z,2022-08-15T00:00:00.123Z",
        ",",
    ]


@pytest.mark.in_soak
def test_dash_means_standard_output(asking: Command, expected: pa.Table, crawl: str, tmp_path: Path) -> None:
    by_dash = asking("query", "*.example.com", "--columns", COLUMNS, "--format", "csv", "-o", "-")
    assert by_dash.out == asking("query", "*.example.com", "--columns", COLUMNS, "--format", "csv").out
    urls = asking("query", "*.example.com", "--format", "url", "-o", "-").out.splitlines()
    assert sorted(urls) == sorted(expected.column("url").to_pylist())
    drawn = asking("sample", "-n", "5", "--crawl", crawl, "-o", "-", "--columns", "url").json_lines()
    words = ["--crawl", crawl, "--yes", "-o", "-"]
    texts = asking("sample", "-n", "5", "--status", "200", *words, "--fetch", "text").json_lines()
    assert len(drawn) == len(texts) == 5
    pages = asking("fetch", "*.example.com", *words, "--format", "text")
    assert pages.err == f"{len(pages.json_lines())} records\n"
    assert all(page["time"].endswith("Z") for page in pages.json_lines())
    with (
        (tmp_path / "stdout.warc.gz").open("wb") as file,
        asking.start_on(file.fileno(), "fetch", "*.example.com", *words, "--quiet") as process,
    ):
        assert process.wait(60) == 0
    found = [url for _, url, _ in records_in(tmp_path / "stdout.warc.gz")]
    assert sorted(found) == sorted(page["url"] for page in pages.json_lines())
    assert not (tmp_path / "-").exists()
    for form, says in (("parquet", "only warc, text and metadata"), ("payload", "only warc, text and metadata")):
        assert says in asking("fetch", "*.example.com", *words, "--format", form).err
    assert "leave out --max-size and --json" in asking("fetch", "*.example.com", *words, "--json").err


def test_fetch_infers_the_format_from_the_name(asking: Command, crawl: str, tmp_path: Path) -> None:
    words = ["fetch", "*.example.com", "--crawl", crawl, "--limit", "3", "--yes"]
    (tmp_path / "there").mkdir()
    for name in ("a.warc.gz", "a.jsonl", "a.parquet", "new/", "there"):
        assert asking(*words, "-o", name).status == 0, name
    assert len(records_in(tmp_path / "a.warc.gz")) == 3
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == pq.read_table(tmp_path / "a.parquet")["text"].to_pylist()
    assert len((tmp_path / "new" / "index.jsonl").read_text().splitlines()) == 3
    assert (tmp_path / "there" / "index.jsonl").exists()
    ran = asking(*words, "-o", "found")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "the format of found is unknown" in ran.err
