"""What is stored changes what an answer costs, never the answer: random questions in many states of the folder."""

import json
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import urlencode

import polars as pl
import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO, SUBSETS, newest_first
from catalogue.errors import CatalogueError, IncompleteAnswer, NotHarvested, UnknownColumn
from catalogue.settings import Settings
from tests.support.amounts import COMPLETE, EXAMPLES
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import crawl_of, table
from tests.support.mirrors import index_paths, whole_table
from tests.support.read_only import read_only
from tests.support.serving import get, serving

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
        return catalogue_in(folder, whole_mirror)

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


@pytest.mark.in_part(2)
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


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", ["footers of pages", "interrupted harvest", "lists"])
def test_servers_and_scans_answer_as_queries_do(states: States, whole_mirror: Path, tmp_path: Path, name: str) -> None:
    questions: list[tuple[str, dict[str, str]]] = [
        ("*.example.com", {"status": "3xx"}),
        ("*.org", {"subset": "all", "mime": "text/html"}),
    ]
    cat = states.opened[name]
    own = Settings(source=str(whole_mirror), cache=tmp_path / "cache")
    with serving(copytree(cat.session.data, tmp_path / name), own) as address:
        for url, words in questions:
            named: dict[str, Any] = {"subsets" if word == "subset" else word: value for word, value in words.items()}
            expected = states.opened["all footers"].captures(url, crawls="latest", columns=["url"], **named)
            urls = expected.to_arrow().column("url").to_pylist()
            assert urls
            frame = cat.scan(url, crawls="latest", **named).select("url").collect()
            assert sorted(frame["url"]) == sorted(urls)
            query = urlencode({"url": url, **words, "crawl": "latest", "columns": "url", "limit": 10_000})
            answer = get(address, f"/api/query?{query}").json
            assert (answer["complete"], answer["missing"]) == (True, [])
            assert [row["url"] for row in answer["captures"]] == urls


INDEXES = "cc-index/collections/*/indexes"
REMOVED = {
    "the CDX index": {f"{INDEXES}/*": 1},
    "every second file": {"cc-index/table/cc-main/warc/*/*/*.parquet": 2},
    "blocks": {f"{INDEXES}/cdx-00000.gz": 1},
    "lists": {COLLINFO: 1, f"{INDEXES}/cluster.idx": 1},
}
"""Patterns of files, each n-th of which is removed."""


@pytest.mark.in_part(2)
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
            catalogue_in(tmp_path, broken, data=data, cache_size=0) as cat,
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


OLDER, NEWER = "CC-MAIN-2018-05", "CC-MAIN-2022-33"
ROWS = 100


def _crawl(folder: Path, crawl: str, extra: pa.Array, start: datetime, **more: pa.Array) -> None:
    times = pa.array([start + timedelta(minutes=number) for number in range(ROWS)], pa.timestamp("ms", "UTC"))
    keys = [f"com,example)/{crawl.lower()}/{number:05}" for number in range(ROWS)]
    # The older one has no statistics of times, as in 2018.
    crawl_of(
        folder,
        table(keys, fetch_time=times, extra=extra, **more),
        crawl=crawl,
        write_statistics=["url_surtkey"],
        write_page_index=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    _crawl(folder, OLDER, pa.array(range(ROWS), pa.int32()), datetime(2018, 1, 20, tzinfo=UTC))
    texts = pa.array([f"text {number}" for number in range(ROWS)])
    _crawl(folder, NEWER, texts, datetime(2022, 8, 10, tzinfo=UTC), other=pa.array(range(ROWS), pa.int64()))
    return folder


@pytest.fixture(scope="module")
def two_states(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Catalogue]]:
    """Catalogues with the older crawl, and with both crawls."""
    folder, settings = tmp_path_factory.mktemp("states"), Settings(source=str(source))
    with ExitStack() as stack:
        one, both = (stack.enter_context(catalogue.open(folder / name, settings=settings)) for name in ("one", "both"))
        one.harvest(OLDER)
        both.harvest([OLDER, NEWER])
        yield [one, both]


@pytest.mark.parametrize(
    "ask",
    [
        lambda cat: cat.captures("*", crawls=OLDER, columns=["extra"]).to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, columns="*").to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, where="extra < '10'", columns=["url"]).to_arrow(),
        lambda cat: cat.captures("*", crawls=OLDER, where="extra > 20", unique="extra").count(),
        lambda cat: cat.sample(cat.captures("*", crawls=OLDER, columns=["extra"]), 5, per="extra").to_arrow(),
        lambda cat: cat.scan("*", crawls=OLDER).filter(pl.col("extra") > 20).collect().to_arrow(),
    ],
    ids=["column", "every column", "text", "unique", "sample", "scan"],
)
def test_columns_are_those_of_the_crawls_of_the_question(
    two_states: list[Catalogue], ask: Callable[[Catalogue], object]
) -> None:
    one, both = map(ask, two_states)
    assert one == both


def test_columns_of_other_crawls_are_unknown(two_states: list[Catalogue]) -> None:
    for cat in two_states:
        with pytest.raises(UnknownColumn, match="there is no column 'other'"):
            cat.captures("*", crawls=OLDER, columns=["other"])


def test_scan_of_some_crawls_has_the_types_of_all(two_states: list[Catalogue]) -> None:
    _, both = two_states
    frame = both.scan("*", crawls=[OLDER, NEWER]).filter(pl.col("crawl") == OLDER, pl.col("extra") == "7")
    assert frame.select("extra", "other").collect().rows() == [("7", None)]


def test_stored_list_of_crawls_chooses_no_captures_of_named_ones(source: Path, tmp_path: Path) -> None:
    folder, answers = copytree(source, tmp_path / "source"), list[tuple[int, pa.Table]]()
    for times in (None, ("2018-01-09", "2018-01-29"), ("1999-01-09", "1999-01-29")):
        if times:
            (folder / COLLINFO).write_text(json.dumps([{"id": OLDER, "from": times[0], "to": times[1]}]))
        with catalogue_in(tmp_path / f"{len(answers)}", folder) as cat:
            cat.harvest([OLDER, NEWER])
            every, later = (
                cat.captures("*", crawls=[OLDER, NEWER], from_=year, columns=["url"]) for year in ("2018", "2022")
            )
            answers.append((every.count(), cat.sample(later, 5).to_arrow()))
    assert answers[0][0] == 2 * ROWS
    assert answers[0] == answers[1] == answers[2]
