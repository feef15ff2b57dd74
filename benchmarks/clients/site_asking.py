"""Sites, tasks and comparison of the clients of ``site``.

``python -m benchmarks.clients.site_NAME TASK FOLDER STAGE`` runs a task of a JSON file and prints the cost of each step
as JSON, as clients of ``lookup`` do. Only the standard library is used, as in ``lookup``.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.clients.lookup_asking import Step, measure

COLUMNS = (
    "url_surtkey",
    "url",
    "fetch_time",
    "fetch_status",
    "content_mime_detected",
    "warc_filename",
    "warc_record_offset",
    "warc_record_length",
)
"""Columns of the queries: the capture and the location of its record."""

PREPARE, ASK = "prepare", "ask"
"""Stages, each a process: store data for later processes (some clients only), and query."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a query selects: a domain with all its hosts, none of which has a port, or captures of a media type."""

    domain: str
    captures: int
    """Number of its rows."""
    mime: str = ""
    """A media type of any domain, as ``content_mime_detected``; ``domain`` is its name in the tables."""
    columns: Sequence[str] = COLUMNS
    """Columns of the captures; without any they are counted."""

    @property
    def pattern(self) -> str:
        """Pattern for ``catalogue`` and CDX servers."""
        return "*" if self.mime else f"*.{self.domain}"

    @property
    def low(self) -> str:
        """Lower bound of its keys, inclusive."""
        return f"{','.join(reversed(self.domain.split('.')))})"

    @property
    def high(self) -> str:
        """Upper bound of its keys, exclusive; they continue with ``)`` or ``,``."""
        return f"{self.low[:-1]}-"

    @property
    def where(self) -> str:
        """Condition in SQL; keys have no apostrophes."""
        if self.mime:
            return f"content_mime_detected = '{self.mime}'"
        return f"url_surtkey >= '{self.low}' AND url_surtkey < '{self.high}'"


@dataclass(frozen=True, slots=True)
class Task:
    """Arguments of a client."""

    source: str
    """URL of the crawl's server, with a trailing slash."""
    crawl: str
    manifest: str
    """Path of the list of index files."""
    files: Sequence[str]
    """Paths of the index files."""
    sites: Sequence[Site]
    server: str
    """URL of the crawl on a CDX server; empty for other clients."""
    folder: Path
    """Folder of the client, shared by its stages."""
    rate: float | None = None
    """Requests a second of ``catalogue``; None for no limit."""

    @property
    def urls(self) -> list[str]:
        """URLs of the index files."""
        return [self.source + file for file in self.files]


Ask = Callable[[Site], Any]
"""Returns an Arrow table or a list of dictionaries."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A step, with the digest of its captures."""

    step: Step
    digest: str


def start(prepare: Callable[[Task], Ask], *, before: Callable[[Task], int] | None = None) -> None:
    """Run a client with the arguments of the command line.

    Args:
        prepare: runs before the first query and is not measured, like imports.
        before: the stage ``PREPARE``; returns the number of prepared files.
    """
    file, folder, stage = sys.argv[1:]
    fields = json.loads(Path(file).read_text(encoding="utf-8"))
    task = Task(**fields | {"sites": [Site(**site) for site in fields["sites"]], "folder": Path(folder)})
    if stage == PREPARE:
        assert before
        cost = measure(task.source, PREPARE, lambda: before(task))
        answers: Iterable[Answer] = [Answer(cost, "")]
    else:
        answers = _answers(task, prepare(task))
    print(json.dumps([asdict(answer) for answer in answers]))


def _answers(task: Task, ask: Ask) -> Iterator[Answer]:
    for site in task.sites:
        results: list[Any] = []

        def run(site: Site = site, results: list[Any] = results) -> int:
            results.append(ask(site))
            return len(results[0])

        yield Answer(measure(task.source, site.domain, run), digest(results[0]))


def digest(rows: Any) -> str:  # noqa: ANN401 - pyarrow has no types
    """Return a digest of captures that does not depend on their order."""
    here = [*(rows[0] if rows else ())] if isinstance(rows, list) else rows.column_names
    names = [name for name in ("url", "warc_filename", "warc_record_offset") if name in here]
    captures = rows if isinstance(rows, list) else rows.select(names).to_pylist()  # times would import pandas
    return sha256(
        "\n".join(sorted(" ".join(str(each[name]) for name in names) for each in captures)).encode()
    ).hexdigest()
