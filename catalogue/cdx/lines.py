"""Convert rows of the index to CDX fields, and these to lines, column by column."""

import enum
import json
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

RAW = "line"
"""Column of a table of CDX fields: the line in the CDX index."""

KEY, TIME = "urlkey", "timestamp"
_COLUMNS = {
    "url": "url",
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "status": "fetch_status",
    "digest": "content_digest",
    "length": "warc_record_length",
    "offset": "warc_record_offset",
    "filename": "warc_filename",
    "languages": "content_languages",
    "truncated": "content_truncated",
    "redirect": "fetch_redirect",
    "encoding": "content_charset",
}
FIELDS = (KEY, TIME, *_COLUMNS)
"""In the order of Common Crawl's server, where the renamed ``encoding`` is last."""
_RAW_FIELDS = {name: name for name in ("url", "mime", "mime-detected", "status", "digest", "length", "offset")}
_RAW_FIELDS |= {"filename": "filename", "charset": "encoding", "languages": "languages"}
_RAW_FIELDS |= {"truncated": "truncated", "redirect": "redirect"}
"""Fields of the CDX index after key and time, in its order, see ``WarcCdxWriter`` in
https://github.com/commoncrawl/nutch. The server renames ``charset`` to ``encoding``."""

_UNQUOTED = r"[^ !#-\[\]-~]"
"""Characters that JSON in ASCII escapes."""
_BREAK = re.compile(r"[\s\x00-\x1f\x7f]")
"""Characters that would end a key or a line; valid keys contain none."""
_INVALID_STATUS = "-1"
"""Status of a capture whose status was not a number."""


class Output(enum.Enum):
    """A format of lines; the value is its content type."""

    CDXJ = "text/x-cdxj"
    """Key, time and a JSON object."""
    JSON = "text/x-ndjson"
    """A JSON object."""
    TEXT = "text/plain"
    """Values separated by blanks; ``-`` for missing ones."""


def cdx_table(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of the index, with any of its columns, to text columns ``FIELDS`` and ``RAW``.

    Missing values are null, but ``-`` for key and time.
    """
    nothing = pa.nulls(rows.num_rows, pa.string())
    column = {name: rows.column(name) for name in rows.schema.names}
    fields = places_of(rows)
    fields |= {name: column.get(of, nothing).cast(pa.string()) for name, of in _COLUMNS.items()}
    fields["url"] = _ascii(fields["url"])
    fields["status"] = pc.if_else(pc.equal(fields["status"], _INVALID_STATUS), None, fields["status"])
    raw = _objects({name: fields[of] for name, of in _RAW_FIELDS.items()})
    fields[RAW] = pc.binary_join_element_wise(fields[KEY], fields[TIME], raw, " ")
    return pa.RecordBatch.from_pydict(fields)


def places_of(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return key and time, by which lines are sorted first; ``-`` if missing."""
    nothing = pa.nulls(rows.num_rows, pa.string())
    key, time = (rows.column(name) if name in rows.schema.names else nothing for name in ("url_surtkey", "fetch_time"))
    return {KEY: _without_breaks(key).fill_null("-"), TIME: _stamps(time).fill_null("-")}


def write_lines(table: pa.RecordBatch, output: Output, names: Sequence[str] | None = None) -> bytes:
    """Write lines of a table of CDX fields.

    ``names`` are the fields in their order; None for all that a capture has. CDXJ always has key and time. Unknown
    names are ``-`` in text and left out otherwise. ``charset`` is another name of ``encoding``.
    """
    selected = FIELDS if names is None else names
    columns = {name: column for name in selected if (column := _column(table, name)) is not None}
    match output:
        case Output.TEXT:
            lines = _texts(table, selected, columns, every=names is not None)
        case Output.JSON:
            lines = _objects(columns, table.num_rows)
        case Output.CDXJ:
            rest = {name: column for name, column in columns.items() if name not in {KEY, TIME}}
            objects = _objects(rest, table.num_rows)
            lines = pc.binary_join_element_wise(table.column(KEY), table.column(TIME), objects, " ")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _column(table: pa.RecordBatch, name: str) -> pa.Array | None:
    known = "encoding" if name == "charset" else name
    return table.column(known) if known in FIELDS else None


def _texts(table: pa.RecordBatch, selected: Sequence[str], columns: dict[str, pa.Array], *, every: bool) -> pa.Array:
    nothing = pa.nulls(table.num_rows, pa.string())
    values = [columns.get(name, nothing) for name in selected]
    if every:
        values = [value.fill_null("-") for value in values]
    return _joined(values, " ")


def _objects(columns: dict[str, pa.Array], length: int = 0) -> pa.Array:
    """Write JSON objects as ``json.dumps`` does, without null values."""
    members = [
        pc.binary_join_element_wise(pa.scalar(f"{json.dumps(name)}:"), _quoted(values), " ")
        for name, values in columns.items()
    ]
    inside = _joined(members, ", ") if members else pa.array([""] * length, pa.string())
    return pc.binary_join_element_wise("{", inside, "}", "")


def _joined(values: Sequence[pa.Array], between: str) -> pa.Array:
    # null_handling="skip" of Arrow loses rows that have only nulls.
    each = (pc.binary_join_element_wise(between, value, "").fill_null("") for value in values)
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*each, ""), start=len(between))


def _quoted(values: pa.Array) -> pa.Array:
    plain = pc.binary_join_element_wise('"', values, '"', "")
    return _replaced(plain, values, _UNQUOTED, json.dumps)


def _ascii(urls: pa.Array) -> pa.Array:
    """Percent-encode URLs with characters beyond ASCII, except ``:`` and ``/``, as pywb does."""
    return _replaced(urls, urls, r"[^\x00-\x7f]", _percent_encoded)


def _percent_encoded(url: str) -> str:
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~:/"
    return "".join(c if c in plain else "".join(f"%{byte:02X}" for byte in c.encode(errors="replace")) for c in url)


def _without_breaks(keys: pa.Array) -> pa.Array:
    return _replaced(keys, keys, r"[\s\x00-\x20\x7f-\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}]", _broken)


def _broken(key: str) -> str:
    return _BREAK.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), key)


def _replaced(plain: pa.Array, values: pa.Array, odd: str, replacement: Callable[[str], str]) -> pa.Array:
    """Return ``plain``, but ``replacement(value)`` where a value matches ``odd``."""
    found = pc.fill_null(pc.match_substring_regex(values, odd), fill_value=False)
    if not pc.any(found).as_py():
        return plain
    return pc.replace_with_mask(plain, found, pa.array(map(replacement, values.filter(found).to_pylist()), pa.string()))


def _stamps(times: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(times.type):
        return times
    utc = pc.floor_temporal(times, unit="second").cast(pa.timestamp("s"))
    digits = pc.year(utc)
    for part in (pc.month, pc.day, pc.hour, pc.minute, pc.second):  # strftime takes seven times as long
        digits = pc.add(pc.multiply(digits, 100), part(utc))
    return pc.utf8_lpad(digits.cast(pa.string()), 14, "0")
