"""Extract text, links and metadata from archived documents, in processes with limited memory and time.

An HTML parser may crash, hang, or take all memory: a megabyte of nested elements keeps one busy for minutes. In a
process without credentials that is an error of one document.
"""

import json
import signal
from contextlib import suppress
from threading import Timer
from typing import Any, Self

from catalogue.errors import BadDocument
from catalogue.isolated_process import start_isolated
from catalogue.records import extract
from catalogue.records.record import Record

_MAX_DOCUMENT = 16 << 20
"""Bytes of a document; Common Crawl keeps 5 MiB."""
_FOUND = ("charset", "charset_detector", "parsed_as", "text", "simhash", "content", "markdown")
_SERVE = "from catalogue.records.extract import serve; serve()"


class Documents:
    """Extract from documents, in any thread."""

    def __init__(self, *, main_content: bool = False, markdown: bool = False, seconds: float = 20.0) -> None:
        """Prepare; each thread that extracts at the same time gets a process, which later ones use again.

        ``main_content`` leaves out navigation, footers and the like; ``markdown`` converts pages to Markdown, too;
        ``seconds`` limit the time of a document.
        """
        self._main_content, self._markdown = main_content, markdown
        self._seconds = seconds
        self._closed = False
        self._idle: list[_ParserProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        while parser := self._take():
            parser.kill()

    def extract(self, record: Record) -> dict[str, Any]:
        """Extract from the document of a record.

        The result has ``charset``, ``charset_detector`` (see ``catalogue.records.text_decoding``), ``parsed_as``
        (``html``, ``rss``, ``atom`` or ``text``), ``text``, its ``simhash``, ``content`` (see
        ``catalogue.records.metadata``; None for plain text), and ``markdown`` if it is requested. It is None for
        documents without text.

        Raises:
            BadDocument: if it is too large or cannot be parsed, or its parser died or took too long.
            BadRecord: if the payload cannot be decoded.
        """
        payload, syntax = record.payload, record.syntax
        if syntax is None:
            return dict.fromkeys(_FOUND)
        if len(payload) > _MAX_DOCUMENT:
            raise BadDocument(f"it has {len(payload):,} bytes; at most {_MAX_DOCUMENT:,} are parsed")
        header = json.dumps([syntax.value, record.content_type, record.url, self._main_content, self._markdown])
        found = json.loads(self._parse(header.encode() + b"\n" + payload))
        if "failure" in found:
            raise BadDocument(found["failure"])
        return dict(found)

    def _parse(self, request: bytes) -> bytes:
        parser = self._take() or _ParserProcess(self._seconds)
        try:
            if (answer := parser.call(request)) is None and not parser.expired:
                parser = _ParserProcess(self._seconds)  # something else may have killed the first
                answer = parser.call(request)
        except BaseException:  # after an interrupt its answer may still come
            parser.kill()
            raise
        if answer is None:
            raise BadDocument(f"its parser {parser.end}", permanent=False)
        self._idle.append(parser)
        if self._closed:
            self.close()
        return answer

    def _take(self) -> "_ParserProcess | None":
        with suppress(IndexError):  # another thread may take the last one
            return self._idle.pop()
        return None


class _ParserProcess:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.expired = False
        self._process = start_isolated(_SERVE)
        assert self._process.stdin  # noqa: S101 - it has both
        assert self._process.stdout  # noqa: S101
        self._requests, self._answers = self._process.stdin, self._process.stdout
        extract.receive(self._answers)  # it has started

    def call(self, request: bytes) -> bytes | None:
        """Return the answer; None if the process died or took too long."""

        def expire() -> None:
            self.expired = True
            self._process.kill()

        self.expired = False
        timer = Timer(self._seconds, expire)
        timer.start()
        answer = None
        with suppress(OSError):  # it closed its end
            extract.send(self._requests, request)
            answer = extract.receive(self._answers)
        timer.cancel()
        if answer is None:
            self.kill()
        return answer

    @property
    def end(self) -> str:
        if self.expired:
            return f"took over {self._seconds:g} s"
        status = self._process.returncode
        return f"died ({signal.Signals(-status).name if status < 0 else f'exit status {status}'})"

    def kill(self) -> None:
        self._process.kill()  # if it has ended, its status stays
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):
                pipe.close()
