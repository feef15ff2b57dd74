"""Lines of a CDX index have the values of the columnar index in every column that is claimed, and are written again."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.blocks import FoundLines
from catalogue.cdx.lines import lines_of
from catalogue.cdx.rows import captures_of, written_lines
from catalogue.errors import BadCdx
from catalogue.surt.interval import EVERYTHING
from tests.support.amounts import part_of
from tests.support.cdx_indexes import CdxIndex

CRAWL = "CC-MAIN-2022-33"
SHARD = f"cc-index/collections/{CRAWL}/indexes/cdx-00007.gz"
FILE = f"crawl-data/{CRAWL}/segments/1660.49/warc/CC-MAIN-x.warc.gz"
FIELDS = {
    "url": "https://example.com/",
    "mime": "text/html",
    "mime-detected": "application/xhtml+xml",
    "status": "200",
    "digest": "XVWYJOGUATHZQEPSLNQVRHIPNIQXDA6H",
    "length": "512",
    "offset": "525085",
    "filename": FILE,
    "charset": "UTF-8",
    "languages": "fra",
}


def line(**changes: str | None) -> bytes:
    fields = {name: text for name, text in (FIELDS | changes).items() if text is not None}
    return b"com,example)/ 20220816185132 " + json.dumps(fields).encode()


def found(*lines: bytes) -> FoundLines:
    return FoundLines(SHARD, 17927, 11, b"".join(text + b"\n" for text in lines))


def rows(*lines: bytes) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = captures_of(CRAWL, [found(*lines)]).to_pylist()
    return values


def test_converts_a_line() -> None:
    (row,) = rows(line())
    assert row == {
        "url_surtkey": "com,example)/",
        "url": "https://example.com/",
        "fetch_time": datetime(2022, 8, 16, 18, 51, 32, tzinfo=UTC),
        "fetch_status": 200,
        "fetch_redirect": None,
        "content_digest": "XVWYJOGUATHZQEPSLNQVRHIPNIQXDA6H",
        "content_mime_type": "text/html",
        "content_mime_detected": "application/xhtml+xml",
        "content_charset": "UTF-8",
        "content_languages": "fra",
        "content_truncated": None,
        "warc_record_id": None,
        "warc_filename": FILE,
        "warc_record_offset": 525085,
        "warc_record_length": 512,
        "warc_segment": "1660.49",
        "crawl": CRAWL,
        "subset": "warc",
    }


@pytest.mark.parametrize("subset", ["warc", "crawldiagnostics", "robotstxt"])
def test_subset_is_in_the_path_of_the_archive(subset: str) -> None:
    (row,) = rows(line(filename=FILE.replace("/warc/", f"/{subset}/")))
    assert (row["subset"], row["warc_segment"]) == (subset, "1660.49")
    (old,) = rows(line(filename=f"common-crawl/{FILE}"))
    assert (old["subset"], old["warc_filename"]) == ("warc", f"common-crawl/{FILE}")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *(("404", 404), ("0404", 404), ("-", None), ("", None), (None, None), ("-1", None), ("0", None)),
        *(("200.5", None), ("99999", None), ("2 00", None), ("0" * 5000 + "7", 7), ("-0012", None)),
    ],
)
def test_statuses_that_are_not_positive_numbers_are_null(status: str | None, expected: int | None) -> None:
    for more in (1, 100):
        found = [row["fetch_status"] for row in rows(line(status=status), *[line()] * more)]
        assert found == [expected] + [200] * more


OPTIONAL = {
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "digest": "content_digest",
    "charset": "content_charset",
    "languages": "content_languages",
    "truncated": "content_truncated",
    "redirect": "fetch_redirect",
    "recordid": "warc_record_id",
    "status": "fetch_status",
    "length": "warc_record_length",
    "offset": "warc_record_offset",
}


@pytest.mark.parametrize("unknown", [None, "", "-"])
@pytest.mark.parametrize("around", [0, 100])
def test_missing_empty_and_dashed_values_are_null(unknown: str | None, around: int) -> None:
    every = rows(line(**dict.fromkeys(OPTIONAL, unknown)), *[line()] * around)
    assert {every[0][column] for column in OPTIONAL.values()} == {None}
    assert (every[0]["url"], every[0]["subset"]) == (FIELDS["url"], "warc")
    assert rows(replaced(b'"fra"', b"null")) == rows(line(languages=unknown))
    for name, column in OPTIONAL.items():
        (row,) = rows(line(**{name: unknown}))
        assert row == rows(line())[0] | {column: None}


@pytest.mark.parametrize("around", [0, 100])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("01a0a08b-a7c5-71ea-b0e9-9be8b1fd84cf", "01a0a08ba7c571eab0e99be8b1fd84cf"),
        ("01A0A08B-A7C5-71EA-B0E9-9BE8B1FD84CF", "01a0a08ba7c571eab0e99be8b1fd84cf"),
        *(("01a0a08b-a7c5-71ea-b0e9-9be8b1fd84cg", None), ("01a0a08b+a7c5-71ea-b0e9-9be8b1fd84cf", None)),
        *(("01a0a08b-a7c5-71ea-b0e9-9be8b1fd84c", None), ("é1a0a08b-a7c5-71ea-b0e9-9be8b1fd84c", None), ("-", None)),
        (None, None),
    ],
)
def test_record_ids_are_those_of_uuids(written: str | None, expected: str | None, around: int) -> None:
    others = [line(recordid=f"{number:08x}-0000-7000-8000-00000000000f") for number in range(around)]
    found = [row["warc_record_id"] for row in rows(*others, line(recordid=written), line())]
    assert found[around:] == [expected and bytes.fromhex(expected), None]
    ids = [bytes.fromhex(f"{number:08x}00007000800000000000000f") for number in range(around)]
    assert found[:around] == ids


ARC_PLACES = {
    "CC-MAIN-2012": ("parse-output/segment/1346876860454/1346926549571_750.arc.gz", "1346876860454"),
    "CC-MAIN-2009-2010": ("crawl-002/2010/01/06/10/1262847572760_10.arc.gz", None),
    "CC-MAIN-2008-2009": ("common-crawl/crawl-001/2008/05/12/1210600000000_1.arc.gz", None),
}


@pytest.mark.parametrize("crawl", ARC_PLACES)
def test_archives_before_2013_are_in_other_folders(crawl: str) -> None:
    path, segment = ARC_PLACES[crawl]
    (row,) = captures_of(crawl, [found(line(filename=path))]).to_pylist()
    assert (row["warc_filename"], row["warc_segment"], row["subset"]) == (path, segment, "warc")
    with pytest.raises(BadCdx, match=f"not one of {CRAWL}"):
        rows(line(filename=path))
    with pytest.raises(BadCdx, match=f"not one of {crawl}"):
        captures_of(crawl, [found(line())])


def test_accepts_any_order_unknown_fields_and_numbers() -> None:
    fields = dict(reversed(FIELDS.items())) | {"new": {"a": [1, None]}}
    prefix = b"com,example)/ 20220816185132 "
    assert rows(prefix + json.dumps(fields, separators=(",", ":")).encode()) == rows(line())
    assert rows(*[replaced(b'"512"', b"512").replace(b'"200"', b"200")] * 100) == rows(line()) * 100


IGNORED = {
    "half a character": rb'"x": "\ud800"',
    "a name with half a character": rb'"\udc00": 1',
    "a huge number": b'"x": 1e999',
    "a long text": b'"x": "' + b"y" * 600_000 + b'"',
    "many digits": b'"x": ' + b"9" * 5000,
    "bytes that are not UTF-8": b'"x": "\xff"',
    "deep brackets": b'"x": ' + b"[" * 1200 + b"]" * 1200,
    "a null": b'"redirect": null',
}


@pytest.mark.parametrize("ignored", IGNORED)
def test_few_and_many_lines_are_read_whatever_ignored_fields_have(ignored: str) -> None:
    odd = line()[:-1] + b", " + IGNORED[ignored] + b"}"
    for around in (0, 60):
        assert rows(*[line()] * around, odd, *[line()] * around) == rows(line()) * (2 * around + 1)


@pytest.mark.parametrize("around", [2, 60])
def test_errors_name_the_file_of_the_line(around: int) -> None:
    good = FoundLines("cdx-00001.gz", 100, 1, (line() + b"\n") * around)
    bad = FoundLines("cdx-00002.gz", 900, 5, line()[:-1] + b', "charset": "\xff"}\n')
    with pytest.raises(BadCdx, match=r"cdx-00002\.gz, block at byte 900, line 5: "):
        captures_of(CRAWL, [good, bad])


def at(time: str) -> bytes:
    return replaced(b" 20220816185132 ", f" {time} ".encode())


def replaced(old: bytes, new: bytes) -> bytes:
    assert old in line()
    return line().replace(old, new)


NO_TIMES = [
    *("00000816185132", "20220016185132", "20221316185132", "20220800185132", "20220229185132", "20220631185132"),
    *("20220230185132", "20220431185132", "20221131185132", "20220132185132", "20220100185132"),
    *("20220816245132", "20220816186032", "20220816185160", "20220816+85132"),
]
"""The year, month or day is 0, the month 13, or the day, hour, minute or second too large; not only digits."""
FAULTS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"com,example)/ 20220816185132", "no JSON object"),
    "no time": (b"com,example)/ " + json.dumps(FIELDS).encode(), "no JSON object"),
    "an empty line": (b"", "no JSON object"),
    "an array": (b"com,example)/ 20220816185132 []", "no JSON object"),
    "cut": (line()[:-1], "invalid JSON"),
    "text after the object": (line() + b" x", "invalid JSON"),
    "two objects": (line() + b" {}", "invalid JSON"),
    "a blank after the object": (line() + b" ", "spaces after the JSON object"),
    "two complete objects": (line() + line()[len(b"com,example)/ 20220816185132 ") :], "invalid JSON"),
    "a trailing comma": (replaced(b'"fra"}', b'"fra",}'), "invalid JSON"),
    "a tab in a text": (replaced(b"text/html", b"text\thtml"), "invalid JSON"),
    "a field twice": (replaced(b'"mime": ', b'"mime": "a", "mime": '), "the field mime occurs twice"),
    "a fraction": (replaced(b'"512"', b"512.0"), "the value of length is not a text"),
    "an object": (replaced(b'"fra"', b"{}"), "the value of languages is not a text"),
    "no url": (line(url=None), "no field url"),
    "no file": (line(filename=None), "no field filename"),
    "a null URL": (replaced(b'"https://example.com/"', b"null"), "the value of url is not a text"),
    "an offset that is not a number": (line(offset="0x1"), "invalid offset"),
    "a negative length": (line(length="-1"), "invalid length"),
    "a huge offset": (line(offset="9" * 20), "invalid offset"),
    "another crawl": (line(filename=FILE.replace("2022-33", "2022-27")), f"not one of {CRAWL}"),
    "a file of no subset": (line(filename=FILE.replace("/warc/", "/wat/")), f"not one of {CRAWL}"),
    **{time: (at(time), "invalid key, time or text") for time in NO_TIMES},
    "a short time": (line().replace(b" 202208", b" 2022"), "invalid key, time or text"),
    "a key that is not UTF-8": (line().replace(b")/ ", b")/\xe9 "), "invalid key, time or text"),
    "a text that is not UTF-8": (replaced(b"text/html", b"text/\xe9"), "invalid key, time or text"),
    "a file in no folder": (line(filename=FILE.rpartition("/")[0]), f"not one of {CRAWL}"),
    "half a character": (replaced(b"text/html", b"\\ud800"), "invalid key, time or text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_name_the_line(fault: str) -> None:
    """Few lines, many lines and lines of several batches are parsed in different ways."""
    bad, message = FAULTS[fault]
    for around in (0, 2, 60, *[600] * (fault in {"cut", "20221316185132", "two objects"})):
        lines = found(*[line()] * around, bad, *[line()] * around)
        for read in (lambda lines: captures_of(CRAWL, [lines]), lambda lines: written_lines(CRAWL, lines)):
            with pytest.raises(BadCdx, match=message) as raised:
                read(lines)
            assert f"{SHARD}, block at byte 17,927, line {11 + around}: " in str(raised.value)


def test_objects_of_two_lines_are_not_taken_for_each_other() -> None:
    twice = line() + line()[len(b"com,example)/ 20220816185132 ") :]
    with pytest.raises(BadCdx, match="line 11"):
        rows(twice, b"com,example)/ 20220816185133 ")
    with pytest.raises(BadCdx, match="line 11"):
        rows(line()[:-1] + b",", b'com,example)/ 20220816185133 {"truncated": "length"}')


@given(
    url=st.text(st.characters(exclude_categories=["Cs"])),
    mime=st.text(st.characters(exclude_categories=["Cs"])),
    ascii_only=st.booleans(),
)
def test_any_text_survives(url: str, mime: str, *, ascii_only: bool) -> None:
    fields = FIELDS | {"url": url, "mime": mime}
    (row,) = rows(b"com,example)/ 20220816185132 " + json.dumps(fields, ensure_ascii=ascii_only).encode())
    known = None if mime in {"", "-", "unk"} else mime
    assert (row["url"], row["content_mime_type"]) == (url, known)


@given(st.lists(st.datetimes(), min_size=1))
def test_times_are_those_of_the_calendar(times: list[datetime]) -> None:
    found = rows(*(at(f"{time.year:04}{time:%m%d%H%M%S}") for time in times))
    assert [row["fetch_time"] for row in found] == [time.replace(microsecond=0, tzinfo=UTC) for time in times]


def in_some_order(table: pa.Table) -> pa.Table:
    """Sort by all columns. A missing media type of the server is ``unk`` in lines, and null in tables of a mirror."""
    name = "content_mime_type"
    unk = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], "unk"))
    return unk.sort_by([(each, "ascending") for each in unk.column_names])


@pytest.mark.in_soak
def test_every_row_of_the_columnar_index_is_a_line_and_the_reverse(
    indexes: list[CdxIndex], whole_rows: pa.Table
) -> None:
    found = pa.Table.from_batches(captures_of(index.crawl, index.find(index.parsed(), EVERYTHING)) for index in indexes)
    assert in_some_order(found).equals(in_some_order(whole_rows))
    assert set(found["subset"].to_pylist()) == {"warc", "crawldiagnostics", "robotstxt"}


def test_rows_become_the_lines_that_they_were_made_of(indexes: list[CdxIndex], scanned: dict[str, list[bytes]]) -> None:
    for index in part_of(indexes, 3):
        batch = captures_of(index.crawl, index.find(index.parsed(), EVERYTHING))
        written = lines_of(batch)
        for text, original in zip(written, scanned[index.crawl], strict=True):
            if text.encode() + b"\n" == original:
                continue
            place, fields = text.encode().rsplit(b" {", 1)[0], json.loads(text[text.index(" {") :])
            assert original.startswith(place + b" {")
            assert fields == json.loads(original[original.index(b" {") :])


# Lines of blocks are written as their rows are, whether they are converted or not.


def test_accepts_days_that_exist_and_no_others() -> None:
    for day in ("0229", "0230", "0431", "0631", "1131", "0000", "0100", "1301", "0132"):
        text = line().replace(b" 20220816", f" 2022{day}".encode())
        with pytest.raises(BadCdx, match="invalid key, time or text"):
            written_lines(CRAWL, found(text))
    for stamp in ("20200229000000", "20221231235959", "20220131000000", "20220430120000"):
        text = line().replace(b"20220816185132", stamp.encode())
        assert written_lines(CRAWL, found(text)) == [text.decode()]


RECORD_ID = "01a0a08b-a7c5-71ea-b0e9-9be8b1fd84cf"
VALUES = {
    "url": ["https://example.com/\u00e9", 'a"b', "\\", "", "https://example.com/ x"],
    "status": ["404", "-", "-1", "0200", "", "x", "99999", "2000"],
    "length": ["0", "-", "007", "999999999999999"],
    "offset": ["00", "1"],
    "filename": [f"common-crawl/{FILE}", FILE.replace("/warc/", "/robotstxt/"), FILE.replace("x.warc", 'x".warc')],
    "charset": ["", "-", "-x", "\u2028"],
    "languages": ["eng,fra", "unk"],
    "mime-detected": ["unk", "-", "unknown/x"],
    "truncated": ["length"],
    "redirect": ["https://example.org/\u00fc", "/"],
    "recordid": [RECORD_ID, RECORD_ID.upper(), RECORD_ID[1:], f'{RECORD_ID[:-1]}"', ""],
    "nosuch": ["x"],
}


WITH_ID = [
    dict([*[*FIELDS.items()][:at], ("recordid", RECORD_ID), *[*FIELDS.items()][at:]])
    for at in (0, 1, len(FIELDS) - 2, len(FIELDS))
]


def test_refuses_a_second_record_id() -> None:
    twice = line(recordid=RECORD_ID)[:-1] + f', "recordid": "{RECORD_ID}"}}'.encode()
    with pytest.raises(BadCdx, match="the field recordid occurs twice"):
        written_lines(CRAWL, found(twice))


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.sampled_from([FIELDS, dict(reversed(FIELDS.items())), FIELDS | {"mime": "unk"}, *WITH_ID]),
)
def test_lines_are_those_of_their_rows(
    changes: list[dict[str, str]],
    ascii_only: bool,  # noqa: FBT001 - given by Hypothesis
    fields: dict[str, str],
) -> None:
    lines = [
        f"com,example)/ 20220816185132 {json.dumps(fields | change, ensure_ascii=ascii_only)}".encode()
        for change in changes
    ]
    assert written_lines(CRAWL, found(*lines)) == lines_of(captures_of(CRAWL, [found(*lines)]))
