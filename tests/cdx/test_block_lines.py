"""Lines of blocks are written as their rows are, whether they are converted or not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.lines import lines_of
from catalogue.cdx.rows import captures_of, written_lines
from catalogue.errors import BadCdx
from tests.cdx.test_rows import CRAWL, FAULTS, FIELDS, FILE, SHARD, found, line


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses_what_is_no_row(fault: str) -> None:
    bad, message = FAULTS[fault]
    for around in (0, 2):
        with pytest.raises(BadCdx, match=message) as raised:
            written_lines(CRAWL, found(*[line()] * around, bad, *[line()] * around))
        assert f"{SHARD}, block at byte 17,927, line {11 + around}: " in str(raised.value)


def test_accepts_days_that_exist() -> None:
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
