"""Extract text, links and metadata from archived documents, in processes of their own.

A megabyte of nested elements keeps an extractor busy for minutes, so each document gets a few seconds.
"""

import json
from concurrent.futures import Executor
from importlib.util import find_spec
from typing import Any, Self

from catalogue.errors import BadDocument, QueryError
from catalogue.records.parser_process import ParserDied, ParserProcesses
from catalogue.records.record import Record
from catalogue.settings import install_command

_NEEDED = ("feedparser", "resiliparse.extract.html2text", "resiliparse.parse.encoding", "resiliparse.parse.html")
_MOST = 16 << 20
"""Bytes of a document that are parsed; Common Crawl keeps 5 MiB."""


class Documents:
    """Extract from documents; safe to use from many threads."""

    def __init__(self, *, main_content: bool = False, processes: int | None = None, seconds: float = 20.0) -> None:
        """Prepare the processes.

        Args:
            main_content: leave out navigation, footers and the like.
            processes: at most; by default one for each core.
            seconds: that one document may take.

        Raises:
            QueryError: if the libraries are not installed.
        """
        if not all(find_spec(name.partition(".")[0]) for name in _NEEDED):  # an extra
            raise QueryError(f"to look into pages takes more libraries; run: {install_command('text')}")
        self._main_content = main_content
        self._parsers = ParserProcesses("catalogue.records.extract:answer", *_NEEDED, count=processes, seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._parsers.close()

    def executor(self) -> Executor:
        """Return as many threads as there are processes."""
        return self._parsers.executor()

    def look(self, record: Record) -> dict[str, Any]:
        """Extract from the document of a record.

        Returns:
            ``charset``, ``charset_detector``, ``parsed_as`` (``html``, ``rss``, ``atom`` or ``text``), ``text``, its
            ``simhash``, and ``content``, described in ``catalogue.records.metadata``; None for other documents, and
            ``content`` None for plain text.

        Raises:
            BadDocument: if it cannot be parsed, or its parser died or took too long.
        """
        kind = record.http_header("content-type") or ""
        header = json.dumps([kind, self._main_content]).encode()
        try:
            found = json.loads(self._parsers.call(header + b"\n" + record.payload[:_MOST]))
        except ParserDied as death:
            raise BadDocument(f"its parser {death}") from death
        if "failure" in found:
            raise BadDocument(found["failure"])
        return dict(found)
