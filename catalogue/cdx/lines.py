"""Convert rows of the index to the lines of the CDX index."""

import json
import re
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii

import pyarrow as pa

_COLUMNS = {
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
}
"""Columns by the fields after key and time, in the order of ``WarcCdxWriter`` in https://github.com/commoncrawl/nutch.
"""
_NAMES = [f"{json.dumps(name)}: " for name in _COLUMNS]
_BREAK = re.compile(r"[\s\x00-\x1f\x7f]")
"""Characters that would end a key or a line; valid keys contain none."""
_MEDIA_TYPE = _COLUMNS["mime"]
UNKNOWN_TYPE = "unk"
"""Media type where the server sent none; each line of the CDX index has one."""
_INVALID_STATUS = -1
"""Status that was not a number."""
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~:/")


def lines_of(rows: pa.RecordBatch) -> list[str]:
    """Return the line of each row: ``KEY TIME {JSON}``, all values texts, missing ones left out.

    The rows may have any columns of the index. A missing key or time is ``-``. URLs beyond ASCII, and blanks in keys,
    are percent-encoded, as by pywb.
    """
    columns = {name: rows.column(name) for name in rows.schema.names}
    if _MEDIA_TYPE in columns:
        columns[_MEDIA_TYPE] = columns[_MEDIA_TYPE].fill_null(UNKNOWN_TYPE)
    nothing = [None] * rows.num_rows
    keys, times, *fields = (
        _values(columns[name]) if name in columns else nothing
        for name in ("url_surtkey", "fetch_time", *_COLUMNS.values())
    )
    return [
        f"{_key(key)} {time or '-'} {_object(values)}" for key, time, *values in zip(keys, times, *fields, strict=True)
    ]


def _values(column: pa.Array) -> Sequence[str | int | None]:
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    iso = column.cast(pa.timestamp(column.type.unit)).cast(pa.string()).to_pylist()  # YYYY-MM-DD HH:MM:SS and fractions
    return [each and each[:4] + each[5:7] + each[8:10] + each[11:13] + each[14:16] + each[17:19] for each in iso]


def _key(key: str | None) -> str:
    if key is None:
        return "-"
    return _BREAK.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), key)


def _object(values: list[str | int | None]) -> str:
    """Write the fields as ``json.dumps`` does; ``values`` is changed."""
    url, status = values[0], values[3]
    if isinstance(url, str) and not url.isascii():
        values[0] = "".join(c if c in _PLAIN else _percent_encoded(c) for c in url)
    if status == _INVALID_STATUS:
        values[3] = None
    members = [
        name + (encode_basestring_ascii(value) if isinstance(value, str) else f'"{value}"')
        for name, value in zip(_NAMES, values, strict=True)
        if value is not None
    ]
    return f"{{{', '.join(members)}}}"


def _percent_encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="replace"))
