"""An output folder with a file per crawl and a list of them, so that a query can be resumed."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalogue.atomic_files import make_folder, whole_file
from catalogue.cli.options import SUFFIXES, format_for
from catalogue.cli.row_writer import write
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.store.locks import locked

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.captures import Captures
    from catalogue.query.resolved_query import ResolvedQuery
    from catalogue.selection import Selection
    from catalogue.session import Session

_LIST = "answer.json"


@contextmanager
def open_output_folder(folder: Path, format_: str | None, description: Mapping[str, Any]) -> "Iterator[OutputFolder]":
    """Open or create the folder for the captures of one query, for one process at a time.

    Raises:
        QueryError: if the folder contains anything else.
        StoreLocked: if another process writes into it.
    """
    format_ = format_ or "parquet"
    format_for(format_, folder)
    make_folder(folder)
    with locked(folder / ".answer.lock", folder):
        yield OutputFolder(folder, format_, description)


class OutputFolder:
    """The folder with the captures of one query."""

    def __init__(self, folder: Path, format_: str, description: Mapping[str, Any]) -> None:
        self._folder = folder
        self._format = format_
        self._query = json.loads(json.dumps({**description, "format": format_}))
        self._parts: dict[str, dict[str, Any]] = {}
        if (folder / _LIST).exists():
            self._read()
        elif any(not file.name.startswith(".") for file in folder.iterdir()):
            raise QueryError(f"{folder} contains other files; choose an empty or a new folder")
        else:
            self._write_list()  # before the first file, so that a folder with files always has a list

    def _read(self) -> None:
        try:
            listed = json.loads((self._folder / _LIST).read_text(encoding="utf-8"))
            query, parts = listed["question"], dict(listed["parts"])
            for part in parts.values():
                _ = part["file"], part["size"], part["complete"], part["state"]
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._folder / _LIST} cannot be read; choose another folder, or empty this one"
            raise QueryError(message) from error
        if query != self._query:
            raise QueryError(f"{self._folder} contains the captures of another query; choose another folder")
        self._parts = parts

    def missing(self, states: Mapping[str, str]) -> list[str]:
        """Return the crawls without a complete file of this state; see ``crawl_states``."""
        return [crawl for crawl, state in states.items() if not self._is_complete(self._parts.get(crawl), state)]

    def _is_complete(self, part: dict[str, Any] | None, state: str) -> bool:
        if not part or not part["complete"] or part["state"] != state:
            return False
        path = self._folder / part["file"] if part["file"] else None
        return path is None or (path.is_file() and path.stat().st_size == part["size"])

    def write(self, crawl: str, state: str, captures: "Captures", batches: "Iterable[pa.RecordBatch]") -> int:
        """Write the file of a crawl, if it has captures; return their number."""
        name = f"{crawl}.{SUFFIXES[self._format]}"
        path = self._folder / name
        count = write(batches, captures.plan.schema, self._format, path)
        size = path.stat().st_size
        if not count:
            path.unlink()
        result = {"captures": count, "complete": captures.complete, "state": state}
        self._parts[crawl] = {"file": name if count else None, "size": size} | result
        self._write_list()
        return count

    def _write_list(self) -> None:
        with whole_file(self._folder / _LIST) as file:
            file.write(json.dumps({"question": self._query, "parts": self._parts}, indent=1).encode())


def crawl_states(session: "Session", selection: "Selection") -> dict[str, str]:
    """Return the crawls, each with a digest of its stored files if captures depend on what is stored."""
    if session.dataset == COMMON_CRAWL:
        return dict.fromkeys(selection.crawls, "")
    shown = session.metadata()
    return {crawl: shown.state_of(crawl, selection.subsets) for crawl in selection.crawls}


def describe_query(query: "ResolvedQuery", parameters: Mapping[str, Any], subsets: Sequence[str]) -> dict[str, Any]:
    """Return what distinguishes a query from others, except crawls."""
    return {
        "table": query.table.name,
        "patterns": query.patterns,
        "intervals": [[each.start.hex(), each.end.hex()] for each in query.intervals],
        "columns": "*" if "*" in parameters["columns"] else query.columns,
        "where": query.where and query.where.sql,
        "from": query.from_ms,
        "to": query.to_ms,
        "urls": query.urls,
        "ordered": query.ordered,
        "subsets": sorted(subsets),
    }
