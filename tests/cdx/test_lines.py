"""CDX lines: fields and their order as on Common Crawl's index server, all values texts."""

import json
import string
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.lines import Output, lines_of, write_lines
from catalogue.commoncrawl.schema import SCHEMA

ROW: dict[str, Any] = {
    "url_surtkey": "com,example)/",
    "url": "https://example.com/",
    "fetch_time": datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC),
    "fetch_status": 200,
    "content_digest": "UXZBCQEGW5JKFAF4Y7OTQGEM2ICUPBP5",
    "content_mime_type": "text/html",
    "content_mime_detected": "application/xhtml+xml",
    "content_charset": "UTF-8",
    "content_languages": "eng,isl",
    "warc_filename": "crawl-data/CC-MAIN-2022-05/segments/1/warc/x.warc.gz",
    "warc_record_offset": 5_000_000_000,
    "warc_record_length": 1234,
}
REDIRECT = ROW | {
    "fetch_status": 301,
    "fetch_redirect": "https://www.example.com/",
    "content_truncated": "length",
    "content_languages": None,
    "content_charset": None,
}


def written(*rows: dict[str, Any], output: Output = Output.CDXJ, fields: list[str] | None = None) -> list[str]:
    names = {name: None for row in rows for name in row}
    schema = pa.schema([SCHEMA.field(name) for name in names])
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(names) | row for row in rows], schema=schema)
    return write_lines(lines_of(batch), output, fields).decode().splitlines()


def fields_of(row: dict[str, Any]) -> dict[str, str]:
    (line,) = written(row, output=Output.JSON)
    found: dict[str, str] = json.loads(line)
    return found


def test_writes_cdxj() -> None:
    (line,) = written(ROW)
    assert line == (
        'com,example)/ 20220116093137 {"url": "https://example.com/", "mime": "text/html", '
        '"mime-detected": "application/xhtml+xml", "status": "200", "digest": "UXZBCQEGW5JKFAF4Y7OTQGEM2ICUPBP5", '
        '"length": "1234", "offset": "5000000000", "filename": "crawl-data/CC-MAIN-2022-05/segments/1/warc/x.warc.gz", '
        '"languages": "eng,isl", "encoding": "UTF-8"}'
    )


def test_json_has_key_and_time_as_fields() -> None:
    assert [*fields_of(ROW)] == [
        *("urlkey", "timestamp", "url", "mime", "mime-detected", "status"),
        *("digest", "length", "offset", "filename", "languages", "encoding"),
    ]
    (line,) = written(ROW, output=Output.JSON)
    assert line == json.dumps(json.loads(line))


@pytest.mark.parametrize(
    ("output", "fields", "expected"),
    [
        (Output.JSON, ["status", "url"], '{"status": "301", "url": "https://example.com/"}'),
        (Output.JSON, ["url", "url", "charset", "nosuch"], '{"url": "https://example.com/"}'),
        (Output.JSON, ["nosuch"], "{}"),
        (Output.TEXT, ["timestamp", "encoding", "nosuch", "status"], "20220116093137 - - 301"),
        (Output.CDXJ, ["status", "urlkey"], 'com,example)/ 20220116093137 {"status": "301"}'),
        (Output.CDXJ, ["nosuch"], "com,example)/ 20220116093137 {}"),
    ],
)
def test_selects_fields(output: Output, fields: list[str], expected: str) -> None:
    assert written(REDIRECT, output=output, fields=fields) == [expected]


def test_leaves_out_missing_values() -> None:
    assert written({"url_surtkey": "com,example)/"}) == ["com,example)/ - {}"]
    assert written(dict.fromkeys(SCHEMA.names)) == ['- - {"mime": "unk"}']
    assert written({"url": "", "warc_record_offset": 0}) == ['- - {"url": "", "offset": "0"}']


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n", "\r\n", "\t", "\0", "\x1b[31m", "\u2028", "\x85", "é", "😀", "</script>"]
)
def test_writes_one_line_for_any_text(text: str) -> None:
    row = ROW | {"url": f"https://example.com/{text}", "url_surtkey": f"com,example)/{text}", "content_languages": text}
    (line,) = written(row)
    assert line.isprintable()
    _, time, fields = line.split(" ", 2)
    assert time == "20220116093137"
    url = f"https://example.com/{text}"
    assert json.loads(fields)["url"] == (url if url.isascii() else quote(url, safe=":/"))
    assert json.loads(fields)["languages"] == text
    assert [each.isprintable() for each in written(row, output=Output.TEXT)] == [True]
    assert [each.isprintable() for each in written(row, output=Output.TEXT, fields=["languages"])] == [True]


def test_key_has_no_blanks() -> None:
    (line,) = written(ROW | {"url_surtkey": "com,example)/a b\n\u2028c"})
    assert line.split(" ")[0] == "com,example)/a%20b%0a%e2%80%a8c"
    (line,) = written(ROW | {"url_surtkey": "com,example)/é%20"})
    assert line.split(" ")[0] == "com,example)/é%20"


@given(st.lists(st.text(max_size=12), min_size=1, max_size=8))
def test_json_agrees_with_python(texts: list[str]) -> None:
    rows = [ROW | {"content_mime_type": text, "url_surtkey": text} for text in texts]
    for line, text in zip(written(*rows, output=Output.JSON), texts, strict=True):
        found = json.loads(line)
        assert line == json.dumps(found)
        assert found["mime"] == text
        assert not {*found["urlkey"]} & {*string.whitespace}
