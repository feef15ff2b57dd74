"""Lists of keys in all forms, what is wrong with some of them, and the memory that sorting takes."""

import bz2
import gzip
import io
import json
import re
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue, url_surtkey
from catalogue.errors import QueryError
from catalogue.join.join import JoinQuery, join
from catalogue.join.slices import Sizes
from catalogue.join.sort_keys import _Sorter
from catalogue.surt.pattern import Match
from tests.join.test_join import refuse
from tests.support.commands import Command, ended
from tests.support.warm import Forked

URLS = ["https://example.com/", "http://nowhere.invalid/", "https://www.example.com/"]
FOUND = [1, 3]


@pytest.fixture(scope="module")
def crawl(both: Catalogue) -> str:
    return both.session.metadata().crawls[-1]


@pytest.fixture
def mirror_of(both: Catalogue, tmp_path: Path) -> Command:
    return Command(both.session.folder, str(both.session.settings.source), tmp_path)


def text(*lines: str, end: str = "\n") -> bytes:
    return "".join(f"{line}{end}" for line in lines).encode()


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def damaged(file: bytes) -> bytes:
    return file[:20] + bytes(20) + file[40:]


FILES: dict[str, bytes] = {
    "lines.txt": text(*URLS),
    "cr.txt": text(*URLS, end="\r"),
    "cr.csv": text("id,url", *(f"1,{url}" for url in URLS), end="\r"),
    "stdin": text("url", *URLS),
    "table": text("# from a database", "", "rank;URL", *(f"1;{url}" for url in URLS)),
    "tabs.txt": text('"url"\t"rank"', *(f"{url}\t1" for url in URLS)),
    "lines": gzip.compress(text(*(f'{{"url": "{url}"}}' for url in URLS))),
    "array": text("[", ", ".join(f'{{"url": "{url}"}}' for url in URLS), "]"),
    "index.csv": text(",url", *(f"{number},{url}" for number, url in enumerate(URLS))),
    "no-end.txt": text(*URLS)[:-1],
    "crlf.txt": text(*URLS, end="\r\n"),
    "bom.txt": b"\xef\xbb\xbf" + text(*URLS),
    "blanks.txt": text(*(f"  {url}\t" for url in URLS)),
    "keys.txt": text("com,example)/", "invalid,nowhere)/", "com,example)/", end="\r\n"),
    "blank-keys.txt": text("\u00a0com,example)/", "invalid,nowhere)/", "com,example)/\u3000"),
    "lines.txt.gz": gzip.compress(text(*URLS)),
    "lines.txt.zst": pa.compress(text(*URLS), "zstd", asbytes=True),
    "one.csv": text("url", *URLS),
    "quoted.csv": text("id,url", *(f'"a,""b""","{url}"' for url in URLS)),
    "semicolons.csv": text("id;url", *(f"1;{url}" for url in URLS)),
    "crlf.csv": text("id,url", *(f"1,{url}" for url in URLS), end="\r\n"),
    "packed.csv.gz": gzip.compress(text("url", *URLS)),
    "packed.csv.zst": pa.compress(text("url", *URLS), "zstd", asbytes=True),
    "packed-unnamed.csv": gzip.compress(text("url", *URLS)),
    "tabs.tsv": text("id\turl", *(f"1\t{url}" for url in URLS)),
    "lines.jsonl": text(*(f'{{"n": {n}, "url": "{url}"}}' for n, url in enumerate(URLS))),
    "array.json": f'[{", ".join(f"""{{"url": "{url}"}}""" for url in URLS)}]'.encode(),
    "table.parquet": parquet(pa.table({"n": [1, 2, 3], "url": URLS, "number": [[1], [], None], "crawl": [1, 2, 3]})),
    "dictionary.parquet": parquet(pa.table({"url": pa.array(URLS).dictionary_encode()})),
    "n[1]*?.csv": text("url", *URLS),
}


@pytest.mark.in_part(4)
@pytest.mark.parametrize("name", FILES)
def test_reads_files(both: Catalogue, crawl: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "url=other"  # its name is no value of the column
    folder.mkdir()
    path = folder / name
    path.write_bytes(FILES[name])
    (folder / "n1ab.csv").write_text("url\nhttps://example.com/\n")  # the last one is no pattern of names
    found = both.join(path, tmp_path / "out", how="semi", crawls=crawl)
    assert sorted(found.to_arrow()["row_id"].to_pylist()) == FOUND
    assert (found.input_rows, found.invalid, found.complete) == (3, 0, True)


@pytest.mark.parametrize("before", [8, len(URLS[0]), len(URLS[0]) + 1, len(URLS[0]) + 2])
def test_lines_may_begin_anywhere_in_a_large_file(both: Catalogue, crawl: str, tmp_path: Path, before: int) -> None:
    """Files are read in parts of 4 MiB, of which the first ends ``before`` bytes after the start of a URL."""
    line = f"https://no.example/{'x' * 1000}\r\n"
    start = (4 << 20) - before
    lines = [line] * (start // len(line) - 1)
    filling = start - len("".join(lines)) - len(line) + 1000
    (tmp_path / "urls.txt").write_bytes(
        "".join([*lines, f"https://no.example/{'x' * filling}\r\n", *(f"{url}\r\n" for url in URLS)]).encode()
    )
    found = both.join(tmp_path / "urls.txt", tmp_path / "out", how="semi", crawls=crawl)
    first = len(lines) + 1
    assert sorted(found.to_arrow()["row_id"].to_pylist()) == [first + row for row in FOUND]
    assert (found.input_rows, found.invalid) == (first + len(URLS), 0)


FRAMES: dict[str, Callable[[], Any]] = {
    "table": lambda: pa.table({"url": URLS}),
    "chunks": lambda: pa.table({"url": pa.chunked_array([URLS[:1], [], URLS[1:]])}),
    "views": lambda: pa.table({"url": pa.array(URLS, pa.string_view()), "title": pa.array(URLS, pa.string_view())}),
    "large": lambda: pa.table({"url": pa.array(URLS, pa.large_string())}),
    "bytes": lambda: pa.table({"url": pa.array([url.encode() for url in URLS])}),
    "reader": lambda: pa.table({"url": URLS}).to_reader(),
    "array": lambda: pa.array(URLS),
    "pandas": lambda: pd.DataFrame({"url": URLS, "n": [1.5, None, 2]}, index=["a", "b", "c"]),
    "categories": lambda: pd.DataFrame({"url": pd.Categorical(URLS)}),
    "categories of polars": lambda: pl.DataFrame({"url": pl.Series(URLS, dtype=pl.Categorical)}),
    "series": lambda: pd.Series(URLS, name="link"),
    "list": lambda: URLS,
    "dictionary": lambda: {"url": URLS},
    "keys": lambda: {"id": [1, 2, 3], "url_surtkey": [*map(url_surtkey, URLS)]},
    "generator": lambda: (url for url in URLS),
    "bytes in a list": lambda: [url.encode() for url in URLS],
}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", FRAMES)
def test_reads_tables(both: Catalogue, crawl: str, name: str, tmp_path: Path) -> None:
    for how in ("semi", "inner") if name in {"views", "pandas"} else ("semi",):
        found = both.join(FRAMES[name](), tmp_path / how, how=how, crawls=crawl)
        assert {*found.to_arrow()["row_id"].to_pylist()} == {*FOUND}
        assert found.input_rows == 3


NESTED: list[tuple[Any, list[Any]]] = [
    (pl.List(pl.String), [["a"], None, ["b", "longer than twelve bytes"]]),
    (pl.List(pl.Binary), [[b"a"], [], None]),
    (pl.List(pl.Categorical), [["a"], ["b", None], None]),
    (pl.Array(pl.String, 2), [["a", "b"], None, ["c", "d"]]),
    (pl.Struct({"x": pl.String, "y": pl.List(pl.String)}), [{"x": "a", "y": ["b"]}, None, {"x": None, "y": None}]),
]


@pytest.mark.parametrize("how", ["semi", "inner"])
def test_nested_columns_of_polars(both: Catalogue, crawl: str, how: str) -> None:
    named = {f"n{number}": pl.Series(values, dtype=kind) for number, (kind, values) in enumerate(NESTED)}
    frame = pl.DataFrame({"url": URLS, **named})
    for given in (frame, pl.concat([frame.head(1), frame.slice(1)], rechunk=False)):
        rows = both.join(given, how=how, crawls=crawl).to_arrow().to_pylist()
        assert {row["row_id"] for row in rows} == {*FOUND}
        for row in rows:
            assert [row[f"input_{name}"] for name in named] == [values[row["row_id"] - 1] for _, values in NESTED]


def test_result_read_by_polars_is_an_input(both: Catalogue, crawl: str, tmp_path: Path) -> None:
    found = both.join(URLS, tmp_path / "found.parquet", how="crawls", crawls=crawl)
    again = both.join(pl.read_parquet(tmp_path / "found.parquet"), on="input_key", how="crawls", crawls=crawl)
    assert again.to_arrow()["input_crawls"].to_pylist() == found.to_arrow()["crawls"].to_pylist()


def test_types_that_no_result_has_and_options_of_other_queries_are_refused(both: Catalogue, crawl: str) -> None:
    repeated = pa.RunEndEncodedArray.from_arrays([3], [1])
    for odd in (pa.StructArray.from_arrays([repeated], ["of"]), pa.array([{}] * 3)):
        keys = pa.table({"url": URLS, "n": odd})
        with pytest.raises(QueryError, match=r"the column n has type .*, which a result cannot have; leave it out"):
            both.join(keys, how="inner", crawls=crawl)
    with pytest.raises(QueryError, match="a join does not have the options limit, unique; filter its result"):
        both.join(URLS, crawls=crawl, limit=1, unique="url")  # type: ignore[call-arg]


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "the list has no keys"),
    "blank.txt": (b"\n# x\n", "the list has no keys"),
    "script.txt": (b"javascript:void(0)\n", "the only line is not a URL; line 1: "),
    "scripts.txt": (b"javascript:void(0)\n" * 2, "none of the 2 lines is a URL; line 1: "),
    "several.csv": (b"a,b\n1,2\n", "has the columns a, b; name the one with the keys"),
    "usual.csv": (
        b"host,link\na.example,http://a.example/b\n",
        "has the columns host, link; name the one with the keys",
    ),
    "labels.csv": (b"is\ncom\n", "labels.csv has no header; its first line must name the columns"),
    "empty.csv": (b"", "empty.csv has no header"),
    "ragged.csv": (
        b"url,x\nhttp://example.com/,1\nhttp://example.com/,2,3\n",
        "cannot be read: line 3 has 3 cells, but the header",
    ),
    "comma.csv": (b"url\nhttp://example.com/a,b\n", "line 2 has 2 cells, but the header has 1; quote a value that"),
    "open.csv": (b'url,x\n"http://example.com/,1\n', "cannot be read: line 2: Value with unterminated quote found"),
    "headless.csv": (text(*URLS), "headless.csv has no header"),
    "domains.csv": (b"example.com\nexample.org\n", "domains.csv has no header; its first line must name the columns"),
    "addresses.tsv": (b"192.168.1.1\n192.168.1.2\n", "use a name that ends in .txt"),
    "pages.csv": (b"b\xc3\xbccher.example/a b\nexample.org\n", "pages.csv has no header"),
    "ranks.csv": (b"1,example.com\n2,example.org\n", "ranks.csv has no header; its first line must name the columns"),
    "twice.csv": (b"url,URL\na,b\n", "several columns with the same name"),
    "broken.jsonl": (b'{"url": "http://example.com/"}\n{"url": \n', "broken.jsonl cannot be read: "),
    "captures.txt": (b'com,example)/ 20220116095413 {"url": "https://example.com/"}\n', "has captures in CDX or CDXJ"),
    "mixed-ends.csv": (b"url,x\r\na.example,1\nb.example,2\r\n", "cannot be read: its line ends or quotes differ"),
    "cut.csv.gz": (gzip.compress(text("url", *URLS) * 1000)[:-20], "cut.csv.gz cannot be read: "),
    "cut.jsonl.gz": (gzip.compress(b'{"url": "http://example.com/"}')[:-5], "cut.jsonl.gz cannot be read: "),
    "cut.txt.gz": (gzip.compress(text(*URLS) * 1000)[:-20], "cut.txt.gz cannot be read: "),
    "cut.parquet": (parquet(pa.table({"url": URLS}))[:-9], "cut.parquet cannot be read: "),
    "damaged.parquet": (damaged(parquet(pa.table({"url": URLS * 1000}))), "damaged.parquet cannot be read: "),
    "other.parquet": (bz2.compress(b"x"), "is not a Parquet file"),
    "lists.parquet": (parquet(pa.table({"url": [URLS]})), "values of type list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_files_in_one_sentence(both: Catalogue, crawl: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    content, message = REFUSED[name]
    path.write_bytes(content)
    with pytest.raises(QueryError) as refused:
        both.join(path, tmp_path / "out", crawls=crawl)
    assert message in str(refused.value)
    assert not re.search(r"\n|Possible fixes|strict_mode", str(refused.value))
    assert len(str(refused.value)) < 700
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("output", ["out", "there", "out.parquet"])
def test_refused_join_leaves_nothing(both: Catalogue, crawl: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_bytes(text(*URLS, "no url"))
    (tmp_path / "there").mkdir()
    before = {*tmp_path.rglob("*")}
    refused: list[dict[str, Any]] = [{"agree": refuse}, {"on": "url"}, {"columns": ["none"], "index": "cdx"}]
    for options in refused:
        with pytest.raises(QueryError):
            both.join(tmp_path / "urls.txt", tmp_path / output, **{"crawls": crawl} | options)
        assert {*tmp_path.rglob("*")} == before
    assert both.join(tmp_path / "urls.txt", tmp_path / output, crawls=crawl).rows
    kept = {*tmp_path.rglob("*")}
    with pytest.raises(QueryError):
        both.join(tmp_path / "urls.txt", tmp_path / output, crawls=crawl, on="url")
    assert {*tmp_path.rglob("*")} == kept


@pytest.mark.parametrize("keys", [5, None, [{"a": 1}], ["\ud800"], pa.table({}), pa.table({"n": [[1]]})])
def test_refuses_what_is_no_list_of_keys(both: Catalogue, crawl: str, keys: Any) -> None:
    with pytest.raises(QueryError):
        both.join(keys, crawls=crawl)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("most", [0, 1 << 30])
@pytest.mark.parametrize("last", [[], ["https://example.com/"], ["no url", ""]])
def test_keeps_texts_and_types_of_parquet(
    both: Catalogue, crawl: str, last: list[str], most: int, tmp_path: Path
) -> None:
    """Lists of which all rows are keys are sorted otherwise than those with other rows after many keys, or on disk."""
    texts = ["com,example)/", *(f"com,example)/{number}" for number in range(40_000)), *last]
    given = pa.table(
        {
            "url": texts,
            "id": pa.array([bytes([number % 200]) * 16 for number in range(len(texts))], pa.uuid()),
            "day": pa.array(range(len(texts)), pa.timestamp("ns", "Europe/Berlin")),
            "large": pa.array(map(Decimal, range(len(texts))), pa.decimal256(60, 2)),
            "lasts": pa.array(range(len(texts)), pa.duration("ms")),
            "nothing": pa.nulls(len(texts)),
        }
    )
    path, sizes = tmp_path / "keys.parquet", Sizes(sorted=most)
    pq.write_table(given, path)
    kinds = [JoinQuery.of(how, None, Match.EXACT, {"crawls": crawl}) for how in ("semi", "anti")]
    found = [join(both.session, each, path, tmp_path / each.kind.name, sizes=sizes).to_arrow() for each in kinds]
    every = pa.concat_tables(found).sort_by("row_id")
    valid = given.filter(pc.match_substring(given["url"], "example"))
    assert every.drop_columns("row_id").rename_columns(given.column_names).equals(valid)
    assert {"com,example)/"} <= {*found[0]["input_url"].to_pylist()} <= {"com,example)/", *last}


class _Own(pa.ExtensionType):  # type: ignore[misc]
    """A type that is not registered, so that files say of its columns what type they had."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "_Own":
        return cls()


@pytest.mark.parametrize("keys", [["com,example)/", "com,example)/zz"], ["com,example)/", "https://example.com/zz"]])
def test_columns_of_types_of_others(both: Catalogue, crawl: str, keys: list[str], tmp_path: Path) -> None:
    own = pa.ExtensionArray.from_storage(_Own(), pa.array([7, 8], pa.int64()))
    given = pa.table({"own": own, "url": keys})
    found = [both.join(given, tmp_path / how, on="url", how=how, crawls=crawl).to_arrow() for how in ("semi", "anti")]
    assert [each.drop_columns("row_id").to_pylist() for each in found] == [
        [{"input_own": 7, "input_url": keys[0]}],
        [{"input_own": 8, "input_url": keys[1]}],
    ]


def test_texts_among_other_values_of_json(both: Catalogue, crawl: str, tmp_path: Path) -> None:
    lines = (json.dumps({'my "url': value}) for value in (URLS[0], 5, None, ""))
    (tmp_path / "urls.jsonl").write_text("\n".join(lines))
    found = both.join(tmp_path / "urls.jsonl", tmp_path / "out", how="semi", crawls=crawl)
    assert found.to_arrow()['input_my "url'].to_pylist() == URLS[:1]
    assert (found.input_rows, found.invalid) == (4, 2)  # 5 is the name of a host


def test_reads_captures(both: Catalogue, crawl: str) -> None:
    keys = both.captures("example.com/*", crawls=crawl, columns=["url"], limit=5)
    found = both.join(keys, how="semi", crawls=crawl).to_arrow()
    assert found.column("input_url").to_pylist() == [row["url"] for row in keys]


def test_lists_lines_that_are_no_url(both: Catalogue, crawl: str, tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    path.write_bytes(
        b"# comment\nhttps://example.com/\nno url\n\n\xff\xfe\n # http://a.example\nhttp://example.com:99999/\n"
    )
    found = both.join(path, tmp_path / "out.parquet", how="semi", crawls=crawl)
    assert (found.rows, found.input_rows, found.invalid) == (1, 4, 3)
    assert found.invalid_file == tmp_path / "out_invalid.csv"
    listed = pd.read_csv(found.invalid_file, keep_default_na=False)
    assert listed["line"].tolist() == [3, 5, 7]
    assert listed["text"].tolist() == ["no url", "\ufffd\ufffd", "http://example.com:99999/"]
    assert listed["reason"].str.len().min() > 5


def test_command_line(mirror_of: Command, crawl: str, tmp_path: Path) -> None:
    (tmp_path / "urls.csv").write_bytes(text("link,n", *(f"{url},1" for url in URLS), "not a url,2"))
    ran = mirror_of("join", "urls.csv", "--on", "link", "--crawl", crawl, "--how", "crawls", "-o", "found.parquet")
    assert (ran.status, ran.out) == (0, "")
    assert "3 rows in found.parquet, of 2 keys" in ran.err
    assert "1 row of the input without a valid key" in ran.err
    ran = mirror_of("join", "urls.csv", "--on", "link", "--crawl", crawl, "-o", "found", "--json")
    assert ran.json()["complete"]
    assert ran.json()["invalid"] == 1
    words = ["join", "-", "--crawl", crawl, "--dry-run", "--json"]
    columns = (tmp_path / "urls.csv").read_bytes()
    for given, more, rows in (text(*URLS), [], 3), (FILES["tabs.tsv"], [], 3), (columns, ["--on", "link"], 4):
        with Forked([*words, *more], mirror_of.environment(), tmp_path, given=given) as piped:
            assert ended(piped).json()["rows"] == rows


def test_rows_of_one_key_are_not_all_in_memory(tmp_path: Path) -> None:
    """As those of a list of URLs that is matched by host."""
    count, step = 60_000, 1000
    schema = pa.schema([("key", pa.binary()), ("row", pa.int64()), ("note", pa.string())])
    note, rows, most = "x" * 200, [], 0
    with closing(_Sorter(schema, ("key", "row"), tmp_path, Sizes(sorted=1 << 20))) as sorter:
        before = pa.total_allocated_bytes()
        for start in range(0, count, step):
            columns = [pa.array([b"key"] * step), pa.array(np.arange(start, start + step)), pa.array([note] * step)]
            sorter.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        for batch in sorter.batches():
            rows.append(batch.column("row").to_numpy())
            most = max(most, pa.total_allocated_bytes() - before)
    assert np.array_equal(np.concatenate(rows), np.arange(count))
    assert most < 6 << 20  # of 13 MB
