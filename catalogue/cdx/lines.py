"""Lines of the CDX index, of rows, and as Common Crawl's server writes them."""

import enum
import json
import re
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii

import pyarrow as pa

from catalogue.commoncrawl.schema import SCHEMA
from catalogue.parquet.arrow_arrays import text
from catalogue.query.filters import UNKNOWN_TYPE

FIELDS = {
    "url": "url",
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "status": "fetch_status",
    "digest": "content_digest",
    "length": "warc_record_length",
    "offset": "warc_record_offset",
    "filename": "warc_filename",
    "charset": "content_charset",
    "languages": "content_languages",
    "truncated": "content_truncated",
    "redirect": "fetch_redirect",
    "recordid": "warc_record_id",  # since CC-MAIN-2026-30
}
"""Columns by the fields after key and time, in the order of ``WarcCdxWriter`` in https://github.com/commoncrawl/nutch.
"""
COLUMNS = tuple(
    name
    for name in SCHEMA.names
    if name in {*FIELDS.values(), "url_surtkey", "fetch_time", "warc_segment", "crawl", "subset"}
)
"""The columns that follow from a line, in the order of the columnar index."""
_NAMES = [f"{json.dumps(name)}: " for name in FIELDS]
_BREAK = re.compile(r"[\s\x00-\x1f\x7f]")
"""Characters that would end a key or a line; valid keys contain none."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_MEDIA_TYPE = FIELDS["mime"]
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~:/")


def lines_of(rows: pa.RecordBatch) -> list[str]:
    """Return the line of each row: ``KEY TIME {JSON}``, all values texts, missing ones left out.

    The rows may have any columns of the index. A missing key or time is ``-``. URLs beyond ASCII, and blanks in keys,
    are percent-encoded, as by pywb.
    """
    columns = {name: rows.column(name) for name in rows.schema.names}
    if _MEDIA_TYPE in columns:
        columns[_MEDIA_TYPE] = columns[_MEDIA_TYPE].fill_null(text(UNKNOWN_TYPE))
    nothing = [None] * rows.num_rows
    keys, times, *fields = (
        _values(columns[name]) if name in columns else nothing
        for name in ("url_surtkey", "fetch_time", *FIELDS.values())
    )
    return [
        f"{_key(key)} {time or '-'} {_object(values)}" for key, time, *values in zip(keys, times, *fields, strict=True)
    ]


def _values(column: pa.Array) -> Sequence[str | int | None]:
    if pa.types.is_binary(column.type):
        return [each and _record_id(each.hex()) for each in column.to_pylist()]
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    iso = column.cast(pa.timestamp(column.type.unit)).cast(pa.string()).to_pylist()  # YYYY-MM-DD HH:MM:SS and fractions
    return [each and each[:4] + each[5:7] + each[8:10] + each[11:13] + each[14:16] + each[17:19] for each in iso]


def _record_id(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _key(key: str | None) -> str:
    return "-" if key is None else _BREAK.sub(_escape, key)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())


def _text(values: Iterable[str]) -> str:
    return _CONTROLS.sub(_escape, " ".join(values))


def _object(values: list[str | int | None]) -> str:
    url = values[0]
    if isinstance(url, str) and not url.isascii():
        values[0] = "".join(c if c in _PLAIN else "".join(f"%{b:02X}" for b in c.encode(errors="replace")) for c in url)
    members = [
        name + (encode_basestring_ascii(value) if isinstance(value, str) else f'"{value}"')
        for name, value in zip(_NAMES, values, strict=True)
        if value is not None
    ]
    return f"{{{', '.join(members)}}}"


KEY, TIME = "urlkey", "timestamp"
_RENAMED = {"charset": "encoding"}
"""The server renames this field, and writes it last."""
_CHARSET = re.compile(r'"charset": ("(?:[^"\\]|\\.)*")(?:, )?')
"""JSON as ``lines_of`` writes it; in a value its quotation marks would be escaped."""


class Output(enum.Enum):
    """A format of lines; the value is its content type."""

    CDXJ = "text/x-cdxj"
    """Key, time and a JSON object."""
    JSON = "text/x-ndjson"
    TEXT = "text/plain"
    """Values separated by blanks; ``-`` for missing ones, and control characters are percent-encoded."""


def fields_of(line: str) -> dict[str, str]:
    key, time, text = line.split(" ", 2)
    fields = {KEY: key, TIME: time, **json.loads(text)}
    for name, renamed in _RENAMED.items():
        if name in fields:
            fields[renamed] = fields.pop(name)
    return fields


def time_of(line: str) -> str:
    return line.split(" ", 2)[1]


def write_lines(lines: Iterable[str], output: Output, names: Sequence[str] | None = None) -> bytes:
    """Write lines of ``lines_of`` with the fields ``names``, or with all.

    CDXJ always has key and time. Unknown names are ``-`` in text and left out otherwise. ``charset`` is another name of
    ``encoding``.
    """
    write = _WRITERS[output] if names is None else _selecting(output, names)
    return "".join([f"{write(line)}\n" for line in lines]).encode()


def _write_cdxj(line: str) -> str:
    key, time, text = line.split(" ", 2)
    return f"{key} {time} {_served(text)}"


def _write_json(line: str) -> str:
    key, time, text = line.split(" ", 2)
    start = f'{{"{KEY}": {encode_basestring_ascii(key)}, "{TIME}": {encode_basestring_ascii(time)}'
    rest = _served(text)
    return f"{start}}}" if rest == "{}" else f"{start}, {rest[1:]}"


_WRITERS: dict[Output, Callable[[str], str]] = {
    Output.CDXJ: _write_cdxj,
    Output.JSON: _write_json,
    Output.TEXT: lambda line: _text(fields_of(line).values()),
}


def _served(text: str) -> str:
    """Rename the charset in a JSON object, and move it to the end, without parsing."""
    found = _CHARSET.search(text)
    if not found:
        return text
    others = (text[1 : found.start()] + text[found.end() : -1]).removesuffix(", ")
    return f'{{{others}{", " if others else ""}"{_RENAMED["charset"]}": {found[1]}}}'


def _selecting(output: Output, names: Sequence[str]) -> Callable[[str], str]:
    selected = {name: _RENAMED.get(name, name) for name in names}

    def write(line: str) -> str:
        fields = fields_of(line)
        if output is Output.TEXT:
            return _text(fields.get(_RENAMED.get(name, name), "-") for name in names)
        some = {name: fields[of] for name, of in selected.items() if of in fields}
        if output is Output.JSON:
            return json.dumps(some)
        rest = {name: value for name, value in some.items() if name not in {KEY, TIME}}
        return f"{fields[KEY]} {fields[TIME]} {json.dumps(rest)}"

    return write
