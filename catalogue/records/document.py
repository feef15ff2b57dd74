"""What is in documents that were archived: their text, links and metadata; see ``contents``, which finds them.

Pages are hostile: a megabyte of nested elements keeps an extractor busy for minutes. So this is done in supervised
children, a few seconds each.
"""

import json
from concurrent.futures import Executor
from importlib.util import find_spec
from typing import Any, Self

from catalogue.errors import BadDocument, QueryError
from catalogue.records.record import Record
from catalogue.settings import install_command
from catalogue.supervised import ChildDied, Children

_NEEDED = ("feedparser", "resiliparse.extract.html2text", "resiliparse.parse.encoding", "resiliparse.parse.html")
_MOST = 16 << 20
"""Bytes of a document that are looked at; Common Crawl keeps 5 MiB of each."""


class Documents:
    """Looks into documents; safe to use from many threads."""

    def __init__(self, *, main_content: bool = False, children: int | None = None, seconds: float = 20.0) -> None:
        """Make room for children.

        Args:
            main_content: whether navigation, footers and the like are left out of texts.
            children: how many at most, by default one a core.
            seconds: how long one document may take.

        Raises:
            QueryError: if the libraries are not installed.
        """
        if not all(find_spec(name.partition(".")[0]) for name in _NEEDED):  # an extra
            message = f"to look into pages takes more libraries; run: {install_command('text')}"
            raise QueryError(message)
        self._main_content = main_content
        # So long a time is a verdict on the page; three of them would be a minute.
        self._children = Children(
            "catalogue.records.extract:answer", *_NEEDED, count=children, seconds=seconds, slow_tries=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the children to others."""
        self._children.close()

    def executor(self) -> Executor:
        """Threads enough to keep every child busy."""
        return self._children.executor()

    def look(self, record: Record) -> dict[str, Any]:
        """What is in the document of a record.

        Returns:
            ``charset``, ``charset_detector``, ``parsed_as`` (``html``, ``rss``, ``atom`` or ``text``), ``text``, its
            ``simhash``, and ``content``, described in ``catalogue.records.metadata``; all of them None for what is
            none of these, and ``content`` for plain text.

        Raises:
            BadDocument: if it cannot be parsed, or its parser died or took too long.
        """
        kind = record.http_header("content-type") or ""
        header = json.dumps([kind, self._main_content]).encode()
        try:
            found = json.loads(self._children.ask(header + b"\n" + record.payload[:_MOST]))
        except ChildDied as death:
            message = f"its parser {death}"
            raise BadDocument(message) from death
        if "failure" in found:
            raise BadDocument(found["failure"])
        return dict(found)
