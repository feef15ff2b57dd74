"""Files of URLs: text, CSV, gzipped."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.test_cli import sentence
from tests.support.commands import Command
from tests.support.warm import Forked

PATTERNS = ["example.com", "shop.example.com/*"]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("urls.txt", "example.com\n\n  # a comment\n#another\n  shop.example.com/*  \r\n"),
        ("urls.txt.gz", "\ufeffexample.com\nshop.example.com/*"),
        ("urls.csv", "rank,URL\n1,example.com\n\n2,shop.example.com/*\n"),
        ("urls.csv.gz", "rank,URL\n1,example.com\n\n2,shop.example.com/*\n"),
        ("urls.csv", 'site\n"example.com"\n#x\nshop.example.com/*\n'),
        ("urls.csv", "example.com\nshop.example.com/*\n"),
        ("urls.tsv", "url\trank\nexample.com\t1\nshop.example.com/*\t2\n"),
        ("urls.csv", "rank;URL\n1;example.com\n2;shop.example.com/*\n"),
        ("list", "# from a database\nurl,rank\nexample.com,1\nshop.example.com/*,2\n"),
    ],
)
def test_reads_lists_of_urls(asking: Command, tmp_path: Path, name: str, text: str) -> None:
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    by_file = asking("plan", "--urls-file", name, "--json")
    assert by_file.status == 0, by_file.err
    assert by_file.out == asking("plan", *PATTERNS, "--json").out
    assert by_file.json()["rows"] > 0


def test_joins_lists_and_stdin(asking: Command, tmp_path: Path) -> None:
    (tmp_path / "more").write_text(PATTERNS[1], encoding="utf-8")
    words = ["plan", "--json", "--urls-file", "-", "--urls-file", str(tmp_path / "more")]
    with Forked(words, asking.environment(), asking.home, given=gzip.compress(PATTERNS[0].encode())) as process:
        out, _ = process.communicate(timeout=90)
    assert out.decode() == asking("plan", *PATTERNS, "--json").out


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("exact.txt", b"https://example.com/\nexample.com\n", "line 2: 'example.com' is not a complete URL"),
        ("urls.txt", b"example.com\n\n#\nexa*mple.com\n", "urls.txt, line 4: 'exa*mple.com' has a *"),
        ("urls.csv", b'rank,url\n"1\n1",example.com\n2,a b\n', "urls.csv, line 4: 'a b' contains a space; write %20"),
        ("urls.csv", b"#\nsite\nexample.com\nhttp://a.com:99999/\n", "urls.csv, line 4: 'http://a.com:99999/'"),
        ("urls.csv", b"url\na.com/a,b\n", "line 2 has 2 cells, but the header has 1; quote a value that contains"),
        ("urls.csv", b"rank,site\n1,example.com\n", "has no column url, but rank, site; rename"),
        ("urls.txt.gz", gzip.compress(b"example.com\n" * 9, mtime=0)[:-9], "urls.txt.gz cannot be read"),
        ("a.parquet", b"PAR1\x15\xff", "not UTF-8 text: invalid start byte at byte 5; for Parquet use: catalogue join"),
    ],
)
def test_names_the_line_of_an_invalid_pattern(
    asking: Command, tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(data)
    ran = asking("plan", "--urls-file", str(tmp_path / name), *(["--exact-url"] if name == "exact.txt" else []))
    assert ran.status == 2
    assert says in sentence(ran)


def test_keys_of_other_datasets_may_start_with_an_at_sign(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["@a", "b"]}), tmp_path / "a.parquet")
    command = Command(tmp_path / "data", str(tmp_path), tmp_path)
    assert command("harvest", "--table", "mine", "--key", "name", "a.parquet").status == 0
    assert command("query", "@a", "--table", "mine", "--count").out == "1\n"
