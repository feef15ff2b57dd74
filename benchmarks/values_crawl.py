"""A crawl of real size with a media type in few row groups: files are made of two row groups again and again."""

import os
import shutil
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.crawls import path_of, write_lists
from benchmarks.real_size import CRAWL, INDEX_FILE, real_size, writing
from benchmarks.report import say
from catalogue.parquet.model import MAGIC, TRAILER
from catalogue.parquet.splice import with_trailer
from tests.support.footers import Struct, put_together, take_apart

ROW_GROUPS = 11
RARE, FREQUENT, NOWHERE = "application/x-madeup", "application/pdf", "application/x-nowhere"
"""Media types of a few rows of some row groups, of 1 % of all rows, and of no row."""
RARE_ROWS = 3
"""In each row group that has some."""
_SPARK_VERSION = b"3.2.1"
"""A text of each footer; a number of the same length in its place makes footers differ."""
_GROUP = 1


def has_rare(file: int, row_group: int, *, files: int) -> bool:
    """Return whether a row group has the rare media type: 20 of 300 files have it, each in one row group."""
    return file % max(1, files // 20) == 0 and row_group == file % ROW_GROUPS


def make_crawl(cache: Path, *, rows: int, files: int) -> Path:
    """Return the folder to serve; generate it unless it is cached.

    Files are lists of parts of two files of one row group each, see ``tests.support.faults``.

    Args:
        cache: a folder.
        rows: rows of each row group.
        files: how many.
    """
    folder = cache / f"values-{files}-files-{rows}"
    if not folder.exists():
        real = real_size(cache, rows=rows) / INDEX_FILE
        say(f"making {files} files")
        made = Path(mkdtemp(prefix="crawl-", dir=cache))
        try:
            _write(made, pq.ParquetFile(real).read_row_group(_GROUP), files)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def rare_captures(folder: Path) -> pa.Table:
    """Return the captures of the rare media type in one row group."""
    (file,) = folder.glob("cc-index/**/rare.parquet")
    return pq.read_table(file, filters=pc.field("content_mime_detected") == RARE)


@dataclass(frozen=True)
class _Template:
    """A file with one row group."""

    name: str
    footer: Struct
    pages: int
    """Bytes of its column chunks."""
    indexes: dict[int, bytes]
    """Page indexes, by their offsets."""

    @classmethod
    def of(cls, path: Path) -> "_Template":
        with path.open("rb") as file:
            file.seek(-TRAILER, os.SEEK_END)
            end = file.tell()
            end -= int.from_bytes(file.read(4), "little")
            file.seek(end)
            footer = take_apart(file.read()[:-TRAILER])
            indexes = {}
            for chunk in _chunks(footer, 0):
                for number in (_OFFSET_INDEX, _COLUMN_INDEX):
                    file.seek(chunk[number][1])
                    indexes[chunk[number][1]] = file.read(chunk[number + 1][1])
        return cls(path.name, footer, min(indexes) - len(MAGIC), indexes)


_OFFSET_INDEX, _COLUMN_INDEX = 4, 6
"""Fields of ``ColumnChunk``; each is followed by the length."""


def _chunks(footer: Struct, row_group: int) -> list[Struct]:
    found: list[Struct] = footer[4][1].values[row_group][1][1].values
    return found


@cache
def _shifted(index: bytes, shift: int) -> bytes:
    """Return an offset index of a row group that lies so many bytes later."""
    struct = take_apart(index)
    for location in struct[1][1].values:
        location[1] = (location[1][0], location[1][1] + shift)
    return put_together(struct)


def _write(folder: Path, rows: pa.Table, files: int) -> None:
    write_lists(folder, CRAWL, files)
    place = (folder / path_of(CRAWL, 0)).parent
    place.mkdir(parents=True)
    templates = {}
    for name, table in {"usual": rows, "rare": _with_rare(rows)}.items():
        path = place / f"{name}.parquet"
        with writing(path, table.schema, page_rows=20_000) as writer:
            writer.write_table(table, row_group_size=len(table))
        templates[name] = _Template.of(path)
    for number in range(files):
        names = ["rare" if has_rare(number, group, files=files) else "usual" for group in range(ROW_GROUPS)]
        end = _end([templates[name] for name in names])
        path = folder / path_of(CRAWL, number)
        path.with_name(f"end-{number:05}").write_bytes(end.replace(_SPARK_VERSION, f"{number:05}".encode()))
        parts = [("usual.parquet", 0, len(MAGIC))]
        parts += [(templates[name].name, len(MAGIC), templates[name].pages) for name in names]
        parts.append((f"end-{number:05}", 0, len(end)))
        lines = "".join(f"{name} {start} {length}\n" for name, start, length in parts)
        path.with_name(f"{path.name}.parts").write_text(lines, encoding="utf-8")


def _end(templates: list[_Template]) -> bytes:
    """Return what follows the pages of these row groups: column indexes, offset indexes and the footer."""
    footer = deepcopy(templates[0].footer)
    groups = [deepcopy(template.footer[4][1].values[0]) for template in templates]
    footer[4][1].values[:] = groups
    footer[3] = (footer[3][0], sum(group[3][1] for group in groups))
    shifts = [sum(template.pages for template in templates[:at]) for at in range(len(templates))]
    at = len(MAGIC) + sum(template.pages for template in templates)
    written: list[bytes] = []
    for field in (_COLUMN_INDEX, _OFFSET_INDEX):
        for template, shift, group in zip(templates, shifts, groups, strict=True):
            for chunk in group[1][1].values:
                offset = chunk[field][1]
                data = template.indexes[offset] if field == _COLUMN_INDEX else _shifted(template.indexes[offset], shift)
                chunk[field], chunk[field + 1] = (chunk[field][0], at), (chunk[field + 1][0], len(data))
                written.append(data)
                at += len(data)
    for shift, group in zip(shifts, groups, strict=True):
        group.pop(7, None)
        if 5 in group:
            group[5] = (group[5][0], group[5][1] + shift)
        for chunk in group[1][1].values:
            for struct, number in ((chunk, 2), (chunk[3][1], 9), (chunk[3][1], 11)):
                if number in struct and struct[number][1]:
                    struct[number] = (struct[number][0], struct[number][1] + shift)
    return b"".join(written) + with_trailer(put_together(footer))


def _with_rare(rows: pa.Table) -> pa.Table:
    name = "content_mime_detected"
    rare = np.zeros(len(rows), bool)
    rare[len(rows) // 2 :][:RARE_ROWS] = True  # of one site
    values = pc.if_else(pa.array(rare), pa.scalar(RARE), rows.column(name))
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
