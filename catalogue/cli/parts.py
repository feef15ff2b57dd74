"""An answer in a folder: a file a crawl, and what is there noted beside them, so that it can be gone on with."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from catalogue.cli.writing import SUFFIXES, format_for, whole_file, write
from catalogue.errors import QueryError

_NOTED = "answer.json"


class Parts:
    """A folder that holds, or is to hold, the answer to one question."""

    def __init__(self, folder: Path, format_: str | None, question: dict[str, Any]) -> None:
        """Make the folder, or look at what is there.

        Args:
            folder: whose parent is there.
            format_: of the files; Parquet unless given.
            question: what makes it this question and no other, as JSON has it.

        Raises:
            QueryError: if the folder holds something else.
        """
        self._folder = folder
        self._format = format_ or "parquet"
        format_for(self._format, folder)
        self._question = question | {"format": self._format}
        self._parts: dict[str, dict[str, Any]] = {}
        if not folder.exists():
            folder.mkdir()
        if (folder / _NOTED).exists():
            self._read()
        elif any(not file.name.startswith(".") for file in folder.iterdir()):
            message = f"{folder} holds something else; choose an empty or a new folder"
            raise QueryError(message)

    def _read(self) -> None:
        try:
            noted = json.loads((self._folder / _NOTED).read_text(encoding="utf-8"))
            question, parts = noted["question"], dict(noted["parts"])
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._folder / _NOTED} cannot be read; delete it, or choose another folder"
            raise QueryError(message) from error
        if question != json.loads(json.dumps(self._question)):
            message = f"{self._folder} holds the answer to another question; choose another folder"
            raise QueryError(message)
        self._parts = parts

    def lacking(self, crawls: Iterable[str]) -> list[str]:
        """Those of the crawls of which the answer is not there, or may be incomplete."""
        return [crawl for crawl in crawls if not self._is_there(self._parts.get(crawl))]

    def _is_there(self, part: dict[str, Any] | None) -> bool:
        return bool(part and part["complete"] and (not part["file"] or (self._folder / part["file"]).exists()))

    def write(self, crawl: str, found: Any) -> int:  # noqa: ANN401 - importing its type is slow
        """Read and write the part of a crawl; returns how many captures there were. Of none there is no file."""
        name = f"{crawl}.{SUFFIXES[self._format]}"
        path = self._folder / name
        count = write(found.batches(), found.plan.schema, self._format, path, chosen_columns=True)
        if not count:
            path.unlink()
        self._parts[crawl] = {"file": name if count else None, "captures": count, "complete": found.complete}
        with whole_file(self._folder / _NOTED) as file:
            file.write(json.dumps({"question": self._question, "parts": self._parts}, indent=1).encode())
        return count


def question_of(query: Any, columns: str | None, subsets: Iterable[str]) -> dict[str, Any]:  # noqa: ANN401 - importing its type is slow
    """What makes a question the same as another, but for its crawls."""
    return {
        "table": query.table.name,
        "patterns": query.patterns,
        "intervals": [[each.start.hex(), each.end.hex()] for each in query.intervals],
        "columns": columns,
        "where": query.where and query.where.sql,
        "from": query.from_ms,
        "to": query.to_ms,
        "urls": query.urls,
        "ordered": query.ordered,
        "subsets": sorted(subsets),
    }
