"""An answer in a folder: a file a crawl, and what is there noted beside them, so that it can be gone on with."""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from catalogue.atomic_files import make_folder, whole_file
from catalogue.cli.row_writer import SUFFIXES, format_for, write
from catalogue.errors import QueryError
from catalogue.store.locks import locked

_NOTED = "answer.json"


class Parts:
    """A folder that holds, or is to hold, the answer to one question."""

    def __init__(self, folder: Path, format_: str | None, question: dict[str, Any]) -> None:
        """Make the folder, or look at what is there; it is nobody else's until ``close``.

        Args:
            folder: whose parent is there.
            format_: of the files; Parquet unless given.
            question: what makes it this question and no other, as JSON has it.

        Raises:
            QueryError: if the folder holds something else.
            StoreLocked: if another process writes into it.
        """
        self._folder = folder
        self._format = format_ or "parquet"
        format_for(self._format, folder)
        self._question = json.loads(json.dumps(question | {"format": self._format}))
        self._parts: dict[str, dict[str, Any]] = {}
        make_folder(folder)
        self._held = ExitStack()
        self._held.enter_context(locked(folder / ".answer.lock", folder))
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write into the folder."""
        self._held.close()

    def _begin(self) -> None:
        if (self._folder / _NOTED).exists():
            self._read()
            return
        if any(not file.name.startswith(".") for file in self._folder.iterdir()):
            message = f"{self._folder} holds something else; choose an empty or a new folder"
            raise QueryError(message)
        self._note()  # before the first part, so that a folder with parts always says of which question

    def _read(self) -> None:
        try:
            noted = json.loads((self._folder / _NOTED).read_text(encoding="utf-8"))
            question, parts = noted["question"], dict(noted["parts"])
            for part in parts.values():
                _ = part["file"], part["size"], part["complete"], part["state"]
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._folder / _NOTED} cannot be read; choose another folder, or empty this one"
            raise QueryError(message) from error
        if question != self._question:
            message = f"{self._folder} holds the answer to another question; choose another folder"
            raise QueryError(message)
        self._parts = parts

    def lacking(self, states: Mapping[str, str]) -> list[str]:
        """The crawls whose part is not there, may be incomplete, or was made when other files were held.

        Args:
            states: of what is held of each crawl.
        """
        return [crawl for crawl, state in states.items() if not self._is_there(self._parts.get(crawl), state)]

    def _is_there(self, part: dict[str, Any] | None, state: str) -> bool:
        if not part or not part["complete"] or part["state"] != state:
            return False
        path = self._folder / part["file"] if part["file"] else None
        return path is None or (path.is_file() and path.stat().st_size == part["size"])

    def write(self, crawl: str, state: str, found: Any, batches: Iterable[Any]) -> int:  # noqa: ANN401 - importing its type is slow
        """Read and write the part of a crawl; returns how many captures there were. Of none there is no file."""
        name = f"{crawl}.{SUFFIXES[self._format]}"
        path = self._folder / name
        count = write(batches, found.plan.schema, self._format, path, chosen_columns=True)
        size = path.stat().st_size
        if not count:
            path.unlink()
        told = {"captures": count, "complete": found.complete, "state": state}
        self._parts[crawl] = {"file": name if count else None, "size": size} | told
        self._note()
        return count

    def _note(self) -> None:
        with whole_file(self._folder / _NOTED) as file:
            file.write(json.dumps({"question": self._question, "parts": self._parts}, indent=1).encode())


def question_of(query: Any, *, every_column: bool, subsets: Iterable[str]) -> dict[str, Any]:  # noqa: ANN401 - importing its type is slow
    """What makes a question the same as another, but for its crawls."""
    return {
        "table": query.table.name,
        "patterns": query.patterns,
        "intervals": [[each.start.hex(), each.end.hex()] for each in query.intervals],
        "columns": "*" if every_column else query.columns,
        "where": query.where and query.where.sql,
        "from": query.from_ms,
        "to": query.to_ms,
        "urls": query.urls,
        "ordered": query.ordered,
        "subsets": sorted(subsets),
    }
