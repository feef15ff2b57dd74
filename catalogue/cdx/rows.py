"""Lines of a CDX index as rows of the columnar index.

Columns follow from lines as in Common Crawl's converter (commoncrawl/cc-index-table): texts unchanged, missing ones
null, and the status -1 where it is not a number. Parts of the URL are not among them: they depend on the parser and the
list of public suffixes of the time at which the table was written.
"""

import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from catalogue.cdx.blocks import FoundLines, block_error
from catalogue.cdx.columns import COLUMNS, NUMBERS, TEXTS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.errors import BadCdx
from catalogue.parquet.arrow_arrays import binaries, integers, positions, text

_STATUS = "status"
_REQUIRED = ("url", "filename", *NUMBERS.values())
_FIELDS = (*TEXTS.values(), *NUMBERS.values(), _STATUS)
_JSON = pa.schema([(name, pa.string()) for name in _FIELDS])

_CAPTURES = pa.schema([SCHEMA.field(name) for name in COLUMNS])
_ARCHIVE = (
    "^(?:common-crawl/)?crawl-data/(?P<crawl>[^/]+)/segments/(?P<segment>[^/]+)/"
    "(?P<subset>crawldiagnostics|robotstxt|warc)/"
)
_NUMBER = "^[0-9]{1,15}$"
_SHORT = "^-?0*[0-9]{1,5}$"
_STAMP = r"^([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})$"
_NO_STATUS, _LEAST, _GREATEST = -1, -(1 << 15), (1 << 15) - 1
_NONE = text(str(_NO_STATUS))


def captures_of(crawl: str, found: Sequence[FoundLines]) -> pa.RecordBatch:
    """Convert lines to rows with ``COLUMNS``, in the same order.

    Raises:
        BadCdx: if a line has no valid key, time or JSON object, lacks a field, or is of another crawl. The message
            names file, offset of the block, and line.
    """
    parts = [line.split(b" ", 2) for each in found for line in each.data.split(b"\n")[:-1]]
    try:
        return _convert(crawl, parts)
    except (_Invalid, pa.ArrowInvalid, ValueError) as error:
        raise _first_fault(crawl, found) or block_error(found[0].path, found[0].offset, f"{error}") from error


class _Invalid(Exception):
    """A line is invalid."""


def _convert(crawl: str, parts: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    keys, times, texts = zip(*parts, strict=True) if parts else ((), (), ())
    fields = _objects(texts)
    place = pc.extract_regex(fields["filename"], _ARCHIVE)
    columns = {name: fields[field] for name, field in TEXTS.items()}
    numbers = _checked(pa.concat_arrays([fields[field] for field in NUMBERS.values()]), _NUMBER).cast(pa.int64())
    columns |= {name: numbers.slice(at * len(texts), len(texts)) for at, name in enumerate(NUMBERS)}
    columns |= {"url_surtkey": binaries(keys).cast(pa.string()), "fetch_time": _times(times)}
    columns |= {"fetch_status": _statuses(fields[_STATUS]), "warc_segment": place.field("segment")}
    columns |= {name: place.field(name) for name in ("crawl", "subset")}
    rows = pa.RecordBatch.from_pydict({name: columns[name] for name in COLUMNS}, schema=_CAPTURES)
    if any(fields[name].null_count for name in _REQUIRED) or place.null_count:
        raise _Invalid
    if not pc.all(pc.equal(rows.column("crawl"), text(crawl)), min_count=0).as_py():
        raise _Invalid
    rows.validate(full=True)
    return rows


def _objects(texts: Sequence[bytes]) -> pa.RecordBatch:
    """Parse JSON objects, one a text.

    Arrow reads consecutive objects wherever their lines end. Each text starts and ends as an object and has no line
    feed, so it has at least one; the number of rows tells whether one has more.
    """
    if not texts:
        return pa.RecordBatch.from_pylist([], _JSON)
    if not all(text.startswith(b"{") and text.endswith(b"}") for text in texts):
        raise _Invalid
    data = b"\n".join(texts)
    table = pa.json.read_json(
        pa.BufferReader(data),
        pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa.json.ParseOptions(explicit_schema=_JSON, unexpected_field_behavior="ignore"),
    )
    if len(table) != len(texts):
        raise _Invalid
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _checked(values: pa.Array, form: str) -> pa.Array:
    if not pc.all(pc.match_substring_regex(values, form), skip_nulls=True, min_count=0).as_py():
        raise _Invalid
    return values


def _times(stamps: Sequence[bytes]) -> pa.Array:
    digits = _checked(binaries(stamps).cast(pa.string()), _STAMP)
    return pc.replace_substring_regex(digits, _STAMP, r"\1-\2-\3T\4:\5:\6Z").cast(SCHEMA.field("fetch_time").type)


def _statuses(texts: pa.Array) -> pa.Array:
    known = pc.if_else(pc.match_substring_regex(texts, _SHORT), texts, _NONE)
    values = integers(pc.coalesce(known, _NONE).cast(pa.int64()))
    fits = (values >= _LEAST) & (values <= _GREATEST)
    return positions(np.where(fits, values, _NO_STATUS)).cast(pa.int16())


def _first_fault(crawl: str, found: Sequence[FoundLines]) -> BadCdx | None:
    """Return the error of the first invalid line."""
    for each in found:
        for number, line in enumerate(each.data.split(b"\n")[:-1], each.line):
            if what := _fault(crawl, line):
                return block_error(each.path, each.offset, f"{what} in {line[:300]!r}", number)
    return None


def _fault(crawl: str, line: bytes) -> str | None:
    parts = line.split(b" ", 2)
    if len(parts) != 3 or not parts[2].startswith(b"{"):  # noqa: PLR2004
        return "no JSON object"
    try:
        pairs = json.loads(parts[2].decode(), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        return f"invalid JSON ({error})"
    names = [name for name, _ in pairs if name in _FIELDS]
    if len({*names}) != len(names):
        return f"the field {max(names, key=names.count)} occurs twice"
    values = dict(pairs)
    if wrong := [name for name in names if not isinstance(values[name], str)]:
        return f"the value of {wrong[0]} is not a text"
    if missing := [name for name in _REQUIRED if name not in values]:
        return f"no field {missing[0]}"
    if wrong := [name for name in NUMBERS.values() if not re.fullmatch(r"[0-9]{1,15}", values[name])]:
        return f"invalid {wrong[0]}"
    matched = re.match(_ARCHIVE, values["filename"])
    if not matched or matched["crawl"] != crawl:
        return f"the archive is not one of {crawl}"
    try:
        _convert(crawl, [parts])
    except (_Invalid, pa.ArrowInvalid, ValueError) as error:
        return f"invalid key, time or text ({error})"
    return None
