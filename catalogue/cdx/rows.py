"""Lines of a CDX index as rows of the columnar index, or as ``lines_of`` writes these rows.

Columns follow from lines as in Common Crawl's converter (commoncrawl/cc-index-table), with texts unchanged. Unknown
values are null: missing and empty ones, ``-``, statuses that are not positive numbers, and record ids that are not
UUIDs. Parts of the URL are missing: they depend on the list of public suffixes at the time of the conversion.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from catalogue.cdx.blocks import FoundLines, block_error, split_lines
from catalogue.cdx.lines import COLUMNS, FIELDS, lines_of
from catalogue.commoncrawl.crawls import SUBSETS, has_columnar_index
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.errors import BadCdx
from catalogue.parquet.arrow_arrays import (
    arrow_memory,
    bounds_and_bytes,
    check_years,
    flags,
    integers,
    joined,
    positions,
    text,
    texts,
)
from catalogue.query.resolved_query import known_texts

_REQUIRED, _NUMBERS = ("url", "filename"), ("length", "offset")
_JSON = pa.schema([(name, pa.string()) for name in FIELDS])

_CAPTURES = pa.schema([SCHEMA.field(name) for name in COLUMNS])
_ARCHIVE = re.compile(
    "(?:common-crawl/)?crawl-data/(?P<crawl>[^/]+)/segments/(?P<segment>[^/]+)/"
    "(?P<subset>crawldiagnostics|robotstxt|warc)/"
)
_CRAWL_FOLDER = re.compile("(?:common-crawl/)?crawl-data/([^/]+)/")
_SEGMENT = re.compile("/segments?/([^/]+)/")
_FEW = 64
"""Lines that are parsed here, not by Arrow."""
_AT_ONCE = 256 << 10
"""Bytes that Arrow parses at once; larger buffers need new memory from the system."""
_DECODE = json.JSONDecoder(object_pairs_hook=list, parse_int=str).decode  # values are texts
_MAX_DIGITS = 15
_SHORT = re.compile("0*([0-9]{1,5})")
_GREATEST = (1 << 15) - 1
_STAMP = len("YYYYMMDDHHMMSS")
_PARTS = 3
"""Key, time and JSON object, which may have blanks."""


def captures_of(crawl: str, found: Sequence[FoundLines]) -> pa.RecordBatch:
    """Convert lines to rows with ``COLUMNS``, in the same order.

    Raises:
        BadCdx: if a line has no valid key, time or JSON object, lacks a field, or is of another crawl; with file,
        offset of the block, and line.
    """
    try:
        return _convert(crawl, b"".join(each.data for each in found))
    except (ValueError, RecursionError) as error:  # pa.ArrowInvalid is a ValueError
        raise _first_fault(crawl, found) or block_error(found[0].path, found[0].offset, f"{error}") from error


class _Invalid(ValueError):
    """A line is invalid; the message says what is wrong if it is the only line."""


def _convert(crawl: str, data: bytes) -> pa.RecordBatch:
    keys, times, objects = _parts(data)
    columns = _objects(objects)
    for name in _REQUIRED:
        if columns[FIELDS[name]].null_count:
            raise _Invalid(f"no field {name}")
    archives = pc.split_pattern(columns["warc_filename"], "/", max_splits=1, reverse=True)
    folders = archives.flatten().take(archives.offsets[:-1]).dictionary_encode()
    places = [_place(crawl, folder) for folder in folders.dictionary.to_pylist()]
    columns["warc_segment"] = texts([segment for segment, _ in places]).take(folders.indices)
    columns["subset"] = texts([subset for _, subset in places]).take(folders.indices)
    for name in _NUMBERS:
        columns[FIELDS[name]] = _numbers(name, columns[FIELDS[name]])
    columns |= {"url_surtkey": keys.cast(pa.string()), "fetch_time": _times(times)}
    columns["warc_record_id"] = _record_ids(columns["warc_record_id"])
    columns["fetch_status"] = _statuses(columns["fetch_status"])
    columns["crawl"] = pa.repeat(text(crawl), len(keys))
    rows = pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS], schema=_CAPTURES)
    rows.validate(full=True)
    return rows


def _parts(data: bytes) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.BinaryArray]:
    """Return keys, times and JSON objects; lines and objects end with a line feed."""
    _, lines, _ = split_lines(data)
    parts = pc.split_pattern(lines, b" ", max_splits=_PARTS - 1)
    if (np.diff(integers(parts.offsets)) != _PARTS).any():
        raise _Invalid("no JSON object")
    values = parts.flatten()
    keys, times, objects = (values.take(positions(np.arange(at, len(values), _PARTS))) for at in range(_PARTS))
    return keys, times, objects


def _objects(objects: pa.BinaryArray) -> dict[str, pa.StringArray]:
    """Parse JSON objects, one a line, to columns; unknown values are null.

    Arrow reads objects wherever their lines end, so the number of rows shows whether a line has more. It starts a
    thread, which takes longer than parsing a few lines here.
    """
    if not pc.all(pc.starts_with(objects, b"{"), min_count=0).as_py():
        raise _Invalid("no JSON object")
    found = None
    if len(objects) <= _FEW:
        with suppress(RecursionError):  # Arrow has no limit of depth
            found = _parsed(objects)
    found = found or _parsed_by_arrow(objects)
    if not pc.all(pc.ends_with(objects, b"}\n"), min_count=0).as_py():
        raise _Invalid("spaces after the JSON object")
    return {FIELDS[name]: values if name in _REQUIRED else known_texts(values) for name, values in found.items()}


def _parsed_by_arrow(objects: pa.BinaryArray) -> dict[str, pa.StringArray]:
    bounds, data = bounds_and_bytes(objects)
    try:
        table = pa.json.read_json(
            pa.BufferReader(arrow_memory(data[bounds[0] : bounds[-1]])),
            pa.json.ReadOptions(use_threads=False, block_size=_AT_ONCE),
            pa.json.ParseOptions(explicit_schema=_JSON, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:  # perhaps of a field that is not used, or of a longer line
        return _parsed(objects)
    if len(table) != len(objects):
        raise _Invalid("a line has several objects, or a part of one")
    return dict(zip(table.column_names, map(joined, table.columns), strict=True))


def _parsed(objects: pa.BinaryArray) -> dict[str, pa.StringArray]:
    parsed = []
    for written in objects.to_pylist():
        try:
            pairs = [(name, value) for name, value in _decoded(written) if name in FIELDS]
        except ValueError as error:
            raise _Invalid(f"invalid JSON ({error})") from error
        values = dict(pairs)
        if len(values) != len(pairs):
            names = [name for name, _ in pairs]
            raise _Invalid(f"the field {max(names, key=names.count)} occurs twice")
        for name, value in pairs:
            if not isinstance(value, str if name in _REQUIRED else str | None):
                raise _Invalid(f"the value of {name} is not a text")
        parsed.append(values)
    return {name: texts([values.get(name) for values in parsed]) for name in FIELDS}


def _place(crawl: str, folder: str) -> tuple[str | None, str]:
    matched = _ARCHIVE.match(f"{folder}/")
    if matched and matched["crawl"] == crawl:
        return matched["segment"], matched["subset"]
    of_crawl = _CRAWL_FOLDER.match(f"{folder}/")
    if has_columnar_index(crawl) or (of_crawl and of_crawl[1] != crawl):
        raise _Invalid(f"the archive is not one of {crawl}")
    segment = _SEGMENT.search(f"/{folder}/")  # archives before 2013 are in other folders, without subsets
    return segment[1] if segment else None, SUBSETS[0]


def _numbers(name: str, digits: pa.StringArray) -> pa.Int64Array:
    lengths = pc.binary_length(digits.drop_null()).unique().to_pylist()
    if not pc.all(pc.ascii_is_decimal(digits), min_count=0).as_py() or max(lengths, default=0) > _MAX_DIGITS:
        raise _Invalid(f"invalid {name}")
    return digits.cast(pa.int64())


_ISO = np.frombuffer(b"YYYY-MM-DD hh:mm:ss", np.uint8)
_OF_STAMP = np.isin(_ISO, [*b"-: "], invert=True)
"""True for each character of ``_ISO`` that stands for a digit."""


def _times(stamps: pa.BinaryArray) -> pa.Array:
    """Convert times; NumPy's conversion of texts crashes the process if one of more than 500 is invalid."""
    bounds, data = bounds_and_bytes(stamps)
    if (np.diff(bounds) != _STAMP).any():
        raise ValueError("the time does not have 14 digits")
    iso = np.tile(_ISO, (len(stamps), 1))
    iso[:, _OF_STAMP] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].reshape(-1, _STAMP)
    written = pa.Array.from_buffers(pa.binary(len(_ISO)), len(stamps), [None, pa.py_buffer(iso)])
    times = written.cast(pa.binary()).cast(pa.string()).cast(pa.timestamp("ms"))
    check_years(times)
    return times.cast(SCHEMA.field("fetch_time").type)


def _statuses(written: pa.StringArray) -> pa.Array:
    """Convert statuses; 0 stands for an unknown one."""
    known = written.dictionary_encode(null_encoding="encode")
    shorts = [_SHORT.fullmatch(each or "") for each in known.dictionary.to_pylist()]
    statuses = [value if short and (value := int(short[1])) <= _GREATEST else 0 for short in shorts]
    values = np.array(statuses, np.int64)[integers(known.indices)]
    return pc.if_else(flags(values > 0), positions(values), pa.nulls(1, pa.int64())[0]).cast(pa.int16())


_UUID = len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
_DASHES = (8, 13, 18, 23)
_DIGITS = np.delete(np.arange(_UUID), _DASHES)
_HEX = np.full(256, 16, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def _record_ids(written: pa.StringArray) -> pa.BinaryArray:
    if written.null_count == len(written):
        return pa.nulls(len(written), pa.binary())
    bounds, data = bounds_and_bytes(written)
    sized = np.flatnonzero(np.diff(bounds) == _UUID)
    characters = np.frombuffer(data, np.uint8)[bounds[sized, None] + np.arange(_UUID)]
    digits = _HEX[characters[:, _DIGITS]]
    valid = (digits < 16).all(axis=1) & (characters[:, _DASHES] == ord("-")).all(axis=1)  # noqa: PLR2004
    known = np.zeros(len(written), bool)
    known[sized[valid]] = True
    ends = np.append(0, np.cumsum(known * (_DIGITS.size // 2))).astype(np.int32)
    packed = digits[valid, ::2] << 4 | digits[valid, 1::2]
    buffers = [np.packbits(known, bitorder="little"), ends, np.ascontiguousarray(packed)]
    return pa.Array.from_buffers(pa.binary(), len(written), [pa.py_buffer(each) for each in buffers])


def _decoded(text: bytes) -> list[tuple[str, Any]]:
    """Decode an object; bytes that are not UTF-8 matter only where they are used."""
    pairs: list[tuple[str, Any]] = _DECODE(text.decode(errors="surrogateescape"))
    return pairs


def _first_fault(crawl: str, found: Sequence[FoundLines]) -> BadCdx | None:
    for each in found:
        lines = [line + b"\n" for line in each.data.split(b"\n")[:-1]]
        start, stop = 0, len(lines)
        if _fault(crawl, lines):
            while stop - start > 1:
                middle = (start + stop) // 2
                start, stop = (start, middle) if _fault(crawl, lines[start:middle]) else (middle, stop)
            if what := _fault(crawl, lines[start:stop]):
                return block_error(each.path, each.offset, f"{what} in {lines[start][:-1][:300]!r}", each.line + start)
    return None


def _fault(crawl: str, lines: Sequence[bytes]) -> str | None:
    """Return why lines cannot be converted; None if they can."""
    try:
        _convert(crawl, b"".join(lines))
    except _Invalid as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"invalid key, time or text ({error})"
    return None


_TEXT = r"[ !#-\[\]-~]*"
"""Characters that JSON does not escape."""
_KNOWN = rf'(?!(?:-|unk)?"){_TEXT}'
_NUMBER = r"(?:0|[1-9]\d{0,14})"
_DATE = r"(?:(?:0[1-9]|1[0-2])(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])(?:29|30)|(?:0[13578]|1[02])31)"
"""Month and day, except leap days."""
_ID_FIELD = b', "recordid": "'
_ID_LENGTH = len(_ID_FIELD) + _UUID + len('"')
_ID = "-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12))
_TIME = rf"[12]\d{{3}}{_DATE}(?:[01]\d|2[0-3])(?:[0-5]\d){{2}}"


def written_lines(crawl: str, found: FoundLines) -> list[str]:
    """Return the lines of a block as ``lines_of`` writes its rows.

    Raises:
        BadCdx: if a line is invalid.
    """
    is_plain = _plain(crawl).fullmatch
    lines = found.data.split(b"\n")[:-1]
    ordered = [_with_id_last(line) for line in lines] if _ID_FIELD in found.data else lines
    plain = [is_plain(line) is not None for line in ordered]
    if all(plain):
        return [line.decode("ascii") for line in ordered]
    others = [
        FoundLines(found.path, found.offset, found.line + number, line + b"\n")
        for number, (line, known) in enumerate(zip(lines, plain, strict=True))
        if not known
    ]
    converted = iter(lines_of(captures_of(crawl, others)))
    return [line.decode("ascii") if known else next(converted) for line, known in zip(ordered, plain, strict=True)]


def _with_id_last(line: bytes) -> bytes:
    """Move the record id of a plain line to the end, where ``lines_of`` writes it."""
    start = line.find(_ID_FIELD)
    stop = start + _ID_LENGTH
    return line if start < 0 or stop == len(line) - 1 else line[:start] + line[stop:-1] + line[start:stop] + b"}"


@lru_cache(maxsize=256)
def _plain(crawl: str) -> re.Pattern[bytes]:
    """Match valid lines that a conversion to a row and back does not change."""
    archive = rf"(?:common-crawl/)?crawl-data/{re.escape(crawl)}/segments/[!#-.0-\[\]-~]+/"
    pattern = (
        rf'[!-~]+ {_TIME} {{"url": "{_TEXT}", "mime": "(?!-?"){_TEXT}"{_optional("mime-detected")}'
        rf'(?:, "status": "[1-9]\d\d")?{_optional("digest")}, "length": "{_NUMBER}", "offset": "{_NUMBER}", '
        rf'"filename": "{archive}(?:crawldiagnostics|robotstxt|warc)/{_TEXT}"'
        rf"{_optional('charset', 'languages', 'truncated', 'redirect')}"
        rf'(?:, "recordid": "{_ID}")?}}'
    )
    return re.compile(pattern.encode("ascii"))


def _optional(*names: str) -> str:
    return "".join(rf'(?:, "{name}": "{_KNOWN}")?' for name in names)
