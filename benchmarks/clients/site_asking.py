"""What the clients of ``site`` have in common: the sites that are asked for, and what is compared of their answers.

``python -m benchmarks.clients.site_NAME TASK FOLDER STAGE`` does what a JSON file says and says as JSON what each step
took, as those of ``lookup`` do. Nothing but the standard library is used here, as there.
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
"""What is asked for: what a capture is, and where its record lies."""

PREPARE, ASK = "prepare", "ask"
"""Stages, each a process: what is made once and kept, and the questions. Some have nothing to prepare."""


@dataclass(frozen=True, slots=True)
class Site:
    """A domain with all its hosts, none of which has a port."""

    domain: str
    captures: int
    """Rows that it has."""

    @property
    def pattern(self) -> str:
        """As users of the catalogue and of CDX servers write it."""
        return f"*.{self.domain}"

    @property
    def low(self) -> str:
        """The least key that it may have."""
        return f"{','.join(reversed(self.domain.split('.')))})"

    @property
    def high(self) -> str:
        """A key that is greater than all of its own, which go on with ``)`` or ``,``, and less than all others."""
        return f"{self.low[:-1]}-"

    @property
    def where(self) -> str:
        """The same in SQL; keys have no apostrophes."""
        return f"url_surtkey >= '{self.low}' AND url_surtkey < '{self.high}'"


@dataclass(frozen=True, slots=True)
class Task:
    """What a client is to do."""

    source: str
    """Where the crawl is served, with a slash at its end."""
    crawl: str
    manifest: str
    """Where the list of index files is."""
    files: Sequence[str]
    """The same list, for those who are told it."""
    sites: Sequence[Site]
    server: str
    """A CDX server's address of that crawl; of no use to most."""
    folder: Path
    """Of the client's own; what one stage leaves there the next one finds."""

    @property
    def urls(self) -> list[str]:
        """Of the index files."""
        return [self.source + file for file in self.files]


Ask = Callable[[Site], Any]
"""Answers with an Arrow table, or with a list of dictionaries."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A step, and what tells whether another client found the same."""

    step: Step
    digest: str


def start(prepare: Callable[[Task], Ask], *, before: Callable[[Task], int] | None = None) -> None:
    """Do what the command line says.

    Args:
        prepare: what is done before the first question and not measured, as imports are.
        before: the stage that prepares; returns how many files it has prepared.
    """
    file, folder, stage = sys.argv[1:]
    said = json.loads(Path(file).read_text(encoding="utf-8"))
    task = Task(**said | {"sites": [Site(**site) for site in said["sites"]], "folder": Path(folder)})
    if stage == PREPARE:
        assert before
        took = measure(task.source, PREPARE, lambda: before(task))
        answers: Iterable[Answer] = [Answer(took, "")]
    else:
        answers = _answers(task, prepare(task))
    print(json.dumps([asdict(answer) for answer in answers]))


def _answers(task: Task, ask: Ask) -> Iterator[Answer]:
    for site in task.sites:
        found: list[Any] = []

        def asked(site: Site = site, found: list[Any] = found) -> int:
            found.append(ask(site))
            return len(found[0])

        yield Answer(measure(task.source, site.domain, asked), digest(found[0]))


def digest(rows: Any) -> str:  # noqa: ANN401 - pyarrow has no types
    """What is the same for the same captures in any order."""
    names = ("url", "warc_filename", "warc_record_offset")
    captures = rows if isinstance(rows, list) else rows.select(names).to_pylist()
    return sha256(
        "\n".join(sorted(" ".join(str(each[name]) for name in names) for each in captures)).encode()
    ).hexdigest()
