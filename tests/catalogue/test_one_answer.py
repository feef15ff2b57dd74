"""What is stored changes what an answer costs, never the answer: random questions in many states of the folder."""

import json
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO, SUBSETS, newest_first
from catalogue.errors import CatalogueError, IncompleteAnswer, NotHarvested
from catalogue.settings import Settings
from tests.support.amounts import COMPLETE, EXAMPLES, in_part
from tests.support.commands import Command
from tests.support.mirrors import index_paths, whole_table
from tests.support.read_only import read_only

ONLY_COLUMNAR = "url_host_name"
"""A column that lines of the CDX index do not have."""
SITES = ["*.example.com", "example.com/*", "example.com/", "*.is", "*.org", "no.such.host"]
OPTIONS: dict[str, list[Any]] = {
    "subsets": [*SUBSETS, "all", ["warc", "robotstxt"]],
    "status": [200, 301, "4xx", ["200", "404"]],
    "where": ["fetch_status >= 300", "length(url) < 40", "warc_record_offset % 3 = 1"],
    "mime": ["text/html", "image/*", "unk"],
    "lang": ["eng", "isl,deu"],
    "from_": ["2020", "20220820"],
    "columns": [["url"], ["url", "fetch_time"], ["url_surtkey", "fetch_status"], [ONLY_COLUMNAR, "url"]],
    "limit": [1, 7, 100],
    "ordered": [True],
    "latest": [True],
    "unique": ["url", "digest"],
}
VALUES = ["fetch_status", "content_mime_detected", "content_languages"]
JOINS = ["inner", "semi", "anti", "crawls", "latest"]


@dataclass(frozen=True)
class Answer:
    """What a question returns in one state, apart from its cost."""

    rows: pa.Table
    count: int | None
    complete: bool
    missing: tuple[str, ...]


@dataclass(frozen=True)
class States:
    """Open catalogues of one source, each with a folder in another state."""

    opened: dict[str, Catalogue]
    crawls: list[str]
    """Of the source, newest first."""
    urls: list[str]

    def some(self, chance: random.Random) -> dict[str, Catalogue]:
        """Choose the one that stores all footers and three others; all in long runs."""
        names = [*self.opened] if COMPLETE else chance.sample([*self.opened], 3)
        return {name: self.opened[name] for name in dict.fromkeys(["all footers", *names])}

    def answers(self, question: dict[str, Any], states: dict[str, Catalogue]) -> dict[str, Answer | str]:
        """Ask in some states, and by a named index where all of it is stored."""
        found: dict[str, Answer | str] = {name: ask(cat, question) for name, cat in states.items()}
        found["columnar"] = ask(self.opened["all footers"], {**question, "index": "columnar"})
        if ONLY_COLUMNAR not in question.get("columns", ()):
            found["cdx"] = ask(self.opened["lists"], {**question, "index": "cdx"})
        return found


def ask(cat: Catalogue, question: dict[str, Any]) -> Answer | str:
    """Return the answer, or the kind of the error."""
    try:
        found = cat.captures(**question)
        rows = found.to_arrow()
        count = found.count() if question.get("limit") is None else None
    except NotHarvested:
        return "not harvested"
    return Answer(rows, count, found.complete, found.plan.missing)


@pytest.fixture(scope="module")
def states(
    whole_mirror: Path, whole_data: Path, both_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[States]:
    folder = tmp_path_factory.mktemp("states")
    own = Settings(source=str(whole_mirror), cache=folder / "cache")
    torn = folder / "torn"
    copytree(whole_mirror, torn)
    for path in index_paths(torn)[::3]:
        path.write_bytes(b"torn")

    crawls = newest_first(
        entry["id"]
        for entry in json.loads((whole_mirror / COLLINFO).read_text(encoding="utf-8"))
        if entry["id"] > "CC-MAIN-2013"
    )

    def harvested(name: str, source: Path = whole_mirror, start: Path | None = None, **options: Any) -> Path:
        if start:
            copytree(start, folder / name)
        with catalogue.open(folder / name, settings=replace(own, source=str(source))) as cat:
            cat.harvest(options.pop("crawls", crawls[::2]), **options)
        return folder / name

    folders = {
        "footers of pages": harvested("pages"),
        "values": harvested("values", start=whole_data, subsets="all", values=VALUES),
        "all footers": Path(copytree(whole_data, folder / "footers")),
        "footers of some crawls": harvested("some", crawls=crawls[-1], subsets="all"),
        "interrupted harvest": harvested("interrupted", torn, subsets="all"),
        "lists": harvested("lists", index="cdx"),
        "lists and page indexes": Path(copytree(both_data, folder / "both")),
        "read-only": Path(copytree(whole_data, folder / "read-only")),
    }
    with ExitStack() as stack:
        stack.enter_context(read_only(folders["read-only"]))
        opened = {name: stack.enter_context(catalogue.open(data, settings=own)) for name, data in folders.items()}
        urls = whole_table(whole_mirror, ["url"]).column("url").to_pylist()
        yield States(opened, crawls, urls)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, whole_mirror: Path) -> Callable[[], Catalogue]:
    """Returns a catalogue with an empty folder."""

    def new() -> Catalogue:
        folder = tmp_path_factory.mktemp("empty")
        return catalogue.open(folder / "data", settings=Settings(source=str(whole_mirror), cache=folder / "cache"))

    return new


def words_for_crawls(chance: random.Random, crawls: Sequence[str]) -> str | list[str]:
    """Draw a name, two names, a year, a range, ``latest`` or ``all``."""
    one, other = chance.choice(crawls), chance.choice(crawls)
    oldest, newest = sorted([one, other])
    words: list[str | list[str]] = [one, [one, other], one[8:12], f"{oldest}..{newest}", f"{one}..", "latest", "all"]
    return chance.choice(words)


def question_of(chance: random.Random, states: States) -> dict[str, Any]:
    """Draw the parameters of a question."""
    plain = [url for url in chance.sample(states.urls, 5) if "*" not in url]
    patterns = [chance.choice([*SITES, *plain]) for _ in range(chance.choice([1, 1, 2, 3]))]
    names = chance.sample([*OPTIONS], chance.randrange(5))
    question = {name: chance.choice(OPTIONS[name]) for name in names}
    return {"patterns": patterns, "crawls": words_for_crawls(chance, states.crawls), **question}


@pytest.mark.parametrize("seed", range(EXAMPLES // 5))
def test_answers_are_the_same_in_every_state(states: States, empty: Callable[[], Catalogue], seed: int) -> None:
    chance = random.Random(seed)
    question = question_of(chance, states)
    some = states.some(chance)
    with empty() as cat:
        answers = states.answers(question, {"empty": cat, **some})
    if ONLY_COLUMNAR in question.get("columns", ()):
        with_footers = {"columnar", *{"all footers", "lists and page indexes", "read-only"}.intersection(some)}
        assert {name for name, answer in answers.items() if answer != "not harvested"} >= with_footers
        answers = {name: answer for name, answer in answers.items() if answer != "not harvested"}
    first = answers["columnar"]
    for name, answer in answers.items():
        assert answer == first, (name, question)
    assert isinstance(first, Answer)
    assert first.complete


@pytest.mark.parametrize("seed", range(EXAMPLES // 5))
def test_joins_are_the_same_in_every_state(states: States, empty: Callable[[], Catalogue], seed: int) -> None:
    chance = random.Random(seed)
    there = chance.sample(states.urls, chance.randrange(1, 6))
    keys = [*there, "https://nowhere.invalid/", *(f"{url}zz" for url in there[:2])]
    how = JOINS[seed % len(JOINS)]
    question: dict[str, Any] = {"crawls": words_for_crawls(chance, states.crawls)}
    question["subsets"] = chance.choice([(), *SUBSETS, "all"])
    found: dict[str, tuple[list[dict[str, Any]], bool]] = {}
    with empty() as cat:
        for name, each in {"empty": cat, **states.some(chance)}.items():
            done = each.join(keys, how=how, **question)
            rows = sorted(done.to_arrow().to_pylist(), key=repr)
            found[name] = rows, done.complete
    for name, answer in found.items():
        assert answer == (found["all footers"][0], True), (name, how, question)


@in_part(2)
@pytest.mark.parametrize(
    "words",
    [
        ["query", "*.example.com", "--status", "301", "--format", "url", "--crawl", "2022.."],
        ["query", "no.such.host", "--format", "csv", "--crawl", "latest"],
        ["query", "*.example.com", "--limit", "3", "--subset", "robotstxt", "--format", "csv", "--crawl", "2022.."],
        ["query", "*.org", "--count", "--by", "crawl", "--subset", "all", "--crawl", "2022.."],
        ["get", "https://www.example.com/", "--json", "--no-follow", "--quiet", "--crawl", "latest"],
    ],
    ids=" ".join,
)
def test_commands_say_the_same_in_every_state(
    states: States, whole_mirror: Path, tmp_path: Path, words: list[str]
) -> None:
    names = ("all footers", "interrupted harvest", "lists")
    folders = [tmp_path / "empty", *(states.opened[name].session.data for name in names)]
    ran = [Command(data, str(whole_mirror), tmp_path)(*words) for data in folders]
    first = ran[0]
    for each in ran:
        assert without_cost(each.out) == without_cost(first.out)
        assert each.status == first.status
        said = [line for line in each.err.splitlines() if not line.startswith(("new data folder", "note:", "files in"))]
        assert said == [line for line in first.err.splitlines() if not line.startswith(("new data folder", "note:"))]


def without_cost(text: str) -> object:
    """Return JSON without its cost, or other text as it is."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return {name: each for name, each in found.items() if name not in COST} if isinstance(found, dict) else found


COST = {"requests", "bytes", "seconds"}


INDEXES = "cc-index/collections/*/indexes"
REMOVED = {
    "the CDX index": {f"{INDEXES}/*": 1},
    "every second file": {"cc-index/table/cc-main/warc/*/*/*.parquet": 2},
    "blocks": {f"{INDEXES}/cdx-00000.gz": 1},
    "lists": {COLLINFO: 1, f"{INDEXES}/cluster.idx": 1},
}
"""Patterns of files, each n-th of which is removed."""


@in_part(2)
@pytest.mark.parametrize("removed", REMOVED)
def test_answers_of_a_failing_source_are_complete_or_say_that_they_are_not(
    states: States, whole_mirror: Path, tmp_path: Path, removed: str
) -> None:
    broken = Path(copytree(whole_mirror, tmp_path / "broken"))
    for pattern, every in REMOVED[removed].items():
        for path in sorted(broken.glob(pattern))[::every]:
            path.unlink()
    question: dict[str, Any] = {"crawls": states.crawls[0], "subsets": "all", "columns": ["url"]}
    expected = states.opened["all footers"].captures("*.example.com", **question).to_arrow()
    assert expected.num_rows
    complete = 0
    for name in ("footers of pages", "all footers", "interrupted harvest", "lists", "lists and page indexes"):
        data = copytree(states.opened[name].session.data, tmp_path / name)
        with (
            catalogue.open(data, settings=Settings(source=str(broken), cache_size=0)) as cat,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", IncompleteAnswer)
            found = cat.captures("*.example.com", **question)
            try:
                answer = found.to_arrow()
            except CatalogueError:
                continue
            if found.complete:
                assert answer == expected, name
                complete += 1
    assert complete
