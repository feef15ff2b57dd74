"""Joins of many keys: the rows of a scan, for every kind, both indexes, all eras, and any size of slices."""

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from catalogue import Catalogue
from catalogue.errors import TooExpensive
from catalogue.join.join import JoinQuery, join
from catalogue.join.joined import Joined, JoinEstimate
from catalogue.join.slices import Sizes
from catalogue.progress import Report
from catalogue.query.query import QueryOptions
from catalogue.surt.equality import same_url
from catalogue.surt.key import url_surtkeys
from catalogue.surt.pattern import Match, parse_pattern
from tests.support.amounts import EXAMPLES
from tests.support.catalogues import catalogue_in
from tests.support.crawls import CRAWL, crawl_of, table

COLUMNS = ["url", "fetch_time", "fetch_status", "warc_filename", "warc_record_offset"]
SMALL = Sizes(keys=20, row_groups=6, blocks=9, run=1, few=0, rows=17, batch=8, planned=1_000, sorted=2_000)
KINDS = ["inner", "semi", "anti", "crawls", "latest"]


class Oracle:
    """All rows of some crawls, sorted by key, and what they have of patterns."""

    def __init__(self, rows: pa.Table, crawls: Sequence[str]) -> None:
        self.crawls = list(crawls)
        names = [*COLUMNS, "url_surtkey", "crawl", "subset"]
        chosen = rows.filter(pc.and_(pc.is_in(rows["crawl"], pa.array(self.crawls)), pc.is_valid(rows["url_surtkey"])))
        self.rows: list[dict[str, object]] = chosen.select(names).to_pylist()
        self.rows.sort(key=lambda row: str(row["url_surtkey"]).encode())
        self.keys = [str(row["url_surtkey"]).encode() for row in self.rows]

    @cache  # noqa: B019 - few oracles
    def captures(self, text: str, match: Match) -> list[dict[str, object]]:
        if match is Match.EXACT and ")" in text.split("/", 1)[0]:
            start = bisect_left(self.keys, text.encode())
            return self.rows[start : bisect_left(self.keys, text.encode() + b"\0")]
        return [
            row
            for each in parse_pattern(text, match).intervals
            for row in self.rows[bisect_left(self.keys, each.start) : bisect_left(self.keys, each.end)]
        ]

    @cache  # noqa: B019 - few oracles
    def preferred(self, text: str, match: Match) -> list[dict[str, object]]:
        """Return the captures of the URL itself, or all of its key if it has none."""
        rows = self.captures(text, match)
        exact = [row for row in rows if match is Match.EXACT and same_url(text, str(row["url"]))]
        return exact or rows

    @cache  # noqa: B019 - few oracles
    def newest(self, text: str, match: Match) -> dict[str, object]:
        rows = self.preferred(text, match)
        return max(rows, key=lambda row: tuple(row[name] for name in ("fetch_time", "crawl", *COLUMNS[3:])))


def expected(
    oracle: Oracle, texts: Sequence[str], how: str, match: Match, *, of_keys: bool = False
) -> list[tuple[object, ...]]:
    """Return the rows of a join: number, and what its kind says of them; ``of_keys`` prefers no URL."""
    found: list[tuple[object, ...]] = []
    for number, text in enumerate(texts, 1):
        rows = oracle.captures(text, match)
        if how == "inner":
            preferred = rows if of_keys else oracle.preferred(text, match)
            found += [(number, text, *(row[name] for name in [*COLUMNS, "crawl", "subset"])) for row in preferred]
        elif how == "crawls":
            times = [row["fetch_time"] for row in rows]
            about = [sorted({row[name] for row in rows}) for name in ("crawl", "fetch_status")]  # type: ignore[type-var]
            ends = (min(times), max(times)) if times else (None, None)  # type: ignore[type-var]
            found.append((number, text, len(rows), tuple(about[0][::-1]), *ends, tuple(about[1])))
        elif how == "latest" and rows:
            found.append((number, text, *(oracle.newest(text, match)[name] for name in [*COLUMNS, "crawl", "subset"])))
        elif (how == "semi" and rows) or (how == "anti" and not rows):
            found.append((number, text))
    return sorted(found, key=repr)


def of_result(done: Joined) -> list[tuple[object, ...]]:
    table = done.to_arrow()
    names = {
        "inner": [*COLUMNS, "crawl", "subset"],
        "latest": [*COLUMNS, "crawl", "subset"],
        "crawls": ["captures", "crawls", "first", "last", "statuses"],
    }.get(done.how, [])
    assert len(table) == done.rows
    rows = table.select(["row_id", "input_key", *names]).to_pylist()
    values = [tuple(tuple(v) if isinstance(v, list) else v for v in row.values()) for row in rows]
    return sorted(values, key=repr)


def run(  # noqa: PLR0913 - those of a join
    cat: Catalogue,
    texts: Sequence[str],
    output: Path,
    how: str,
    match: Match = Match.EXACT,
    sizes: Sizes = SMALL,
    agree: Callable[[JoinEstimate], None] = lambda _: None,
    *,
    report: Report | None = None,
    budget: int | None = None,
    **query: object,
) -> Joined:
    columns = {"columns": COLUMNS} if how in {"inner", "latest"} else {}
    options: QueryOptions = {"subsets": "all", **columns, **query}  # type: ignore[typeddict-item]
    asked = JoinQuery.of(how, None, match, options)
    return join(cat.session, asked, list(texts), output, agree=agree, budget=budget, report=report, sizes=sizes)


def refuse(_: object) -> None:
    raise TooExpensive("no")


def texts_of(oracle: Oracle, count: int, seed: int) -> list[str]:
    """Draw URLs that are there, others that are not, keys, and some twice."""
    chance = random.Random(seed)
    there = [str(row["url"]) for row in chance.sample(oracle.rows, count)]
    absent = [f"{url}{chance.choice(['zz', '/zz', '?zz=1'])}" for url in chance.sample(there, count // 3)]
    keys = [str(row["url_surtkey"]) for row in chance.sample(oracle.rows, count // 5)]
    texts = [*there, *absent, *keys, *chance.choices(there, k=count // 10)]
    chance.shuffle(texts)
    return texts


def hosts_of(oracle: Oracle, count: int, seed: int) -> list[str]:
    """Draw hosts and some of their parents, which contain each other as domains."""
    chance = random.Random(seed)
    urls = (str(row["url"]) for row in chance.sample(oracle.rows, 3 * count))
    hosts = {url.split("/")[2].split(":")[0].split("@")[-1] for url in urls}
    plain = sorted(host for host in hosts if host.isascii() and host.replace(".", "").replace("-", "").isalnum())
    parents = [host.split(".", 1)[1] for host in plain if host.count(".") > 1 and not host[-1].isdigit()]
    return [*chance.sample(plain, min(count, len(plain))), *parents[:count], "nowhere.invalid"]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("how", "index", "of"),
    [
        *(("inner", index, "all eras") for index in ("columnar", "cdx")),
        *((how, "cdx", "two crawls") for how in ("semi", "crawls", "latest")),
        *((how, "columnar", "two crawls") for how in ("anti", "crawls")),
        *(("inner", "columnar", "disk"), ("anti", "columnar", "disk"), ("semi", "cdx", "disk")),
        *((how, "columnar", "keys alone") for how in KINDS),
    ],
)
def test_exact_keys(
    both: Catalogue, oracle: Oracle, some: Oracle, how: str, index: str, of: str, tmp_path: Path
) -> None:
    """Also of keys that stay on disk, and of lists that have no URLs."""
    rows = oracle if of == "all eras" else some
    texts, sizes = texts_of(rows, 80 if of == "disk" else 40, seed=len(how)), SMALL
    if of == "disk":
        texts = [text for text in texts if all(key.isascii() for key in keys_of(text))]
        sizes = replace(SMALL, keys=1_000, row_groups=1_000, blocks=1_000, batch=64)
    elif of == "keys alone":
        keys = [key for text in texts for key in keys_of(text)]
        texts = [*keys, *keys[::3]]
        sizes = replace(SMALL, keys=1_000, row_groups=1_000, batch=64 if how in {"semi", "crawls"} else 4)
    done = run(both, texts, tmp_path / "out", how, sizes=sizes, index=index, crawls=rows.crawls)
    assert done.complete
    assert of_result(done) == expected(rows, texts, how, Match.EXACT)


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("how", "match"),
    [
        *(("inner", Match.HOST), ("inner", Match.DOMAIN), ("inner", Match.PREFIX), ("semi", Match.PREFIX)),
        *(("anti", Match.HOST), ("crawls", Match.DOMAIN), ("latest", Match.DOMAIN)),
    ],
)
def test_patterns(both: Catalogue, oracle: Oracle, some: Oracle, how: str, match: Match, tmp_path: Path) -> None:
    rows = oracle if (how, match) == ("inner", Match.DOMAIN) else some
    hosts = hosts_of(rows, 5, seed=len(how))
    texts = [f"{host}/" for host in hosts] if match is Match.PREFIX else hosts
    done = run(both, texts, tmp_path / "out", how, match, crawls=rows.crawls)
    assert done.complete
    assert of_result(done) == expected(rows, texts, how, match)


@pytest.mark.parametrize("seed", range(EXAMPLES // 10))
def test_any_sizes(both: Catalogue, oracle: Oracle, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    texts = texts_of(oracle, chance.choice([1, 5, 60]) + 5, seed=seed)
    sizes = Sizes(
        keys=chance.randrange(1, 60),
        row_groups=chance.randrange(1, 9),
        blocks=chance.randrange(1, 9),
        run=chance.randrange(1, 4),
        few=chance.choice([0, 20]),
        rows=chance.randrange(1, 90),
        batch=chance.randrange(1, 30),
        sorted=chance.choice([0, 2_000, 1 << 30]),
    )
    how = chance.choice(KINDS)
    done = run(both, texts, tmp_path / "out", how, sizes=sizes, crawls=oracle.crawls)
    assert of_result(done) == expected(oracle, texts, how, Match.EXACT)
    if how != "inner":
        numbers = done.to_arrow()["row_id"].to_pylist()
        assert numbers == sorted(numbers, key=lambda number: (min(map(str.encode, keys_of(texts[number - 1]))), number))


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("how", "where", "chosen"),
    [
        ("anti", "url_surtkey LIKE 'org,%'", pc.starts_with(pc.field("url_surtkey"), "org,")),
        ("semi", "subset = 'warc'", pc.field("subset") == "warc"),
    ],
)
def test_conditions_that_need_no_other_column(
    both: Catalogue, rows: pa.Table, some: Oracle, how: str, where: str, chosen: pc.Expression, tmp_path: Path
) -> None:
    texts = [text for text in texts_of(some, 100, seed=9) if all(key.isascii() for key in keys_of(text))]
    wanted = expected(Oracle(rows.filter(chosen), some.crawls), texts, how, Match.EXACT)
    done = run(both, texts, tmp_path / "out", how, index="columnar", where=where, crawls=some.crawls)
    assert of_result(done) == wanted
    assert wanted != expected(some, texts, how, Match.EXACT)


def test_captures_of_other_subsets_are_left_out(both: Catalogue, rows: pa.Table, some: Oracle, tmp_path: Path) -> None:
    texts = texts_of(some, 40, seed=10)
    wanted = expected(
        Oracle(rows.filter(pc.field("subset") == "crawldiagnostics"), some.crawls), texts, "inner", Match.EXACT
    )
    assert wanted
    for index in ("columnar", "cdx"):
        done = run(both, texts, tmp_path / index, "inner", subsets="crawldiagnostics", index=index, crawls=some.crawls)
        assert of_result(done) == wanted


def keys_of(text: str) -> tuple[str, ...]:
    return (text,) if ")" in text.split("/", 1)[0] else url_surtkeys(text)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("latest", [("com,example)/a", 1), ("com,example)/c", 3)]),
        ("crawls", [("com,example)/a", 2, None, []), ("com,example)/c", 1, None, []), ("com,example)/d", 0, None, [])]),
    ],
)
def test_captures_without_times_and_statuses(tmp_path: Path, how: str, expected: list[tuple[object, ...]]) -> None:
    nulls = {
        "fetch_time": pa.nulls(4, pa.timestamp("ms", "UTC")),
        "fetch_status": pa.nulls(4, pa.int16()),
        "warc_filename": pa.array([f"crawl-data/{n}.warc.gz" for n in range(4)]),
        "warc_record_offset": pa.array([0, 1, 2, 3], pa.int32()),
    }
    source = crawl_of(tmp_path / "source", table([f"com,example)/{letter}" for letter in "aabc"], **nulls))
    with catalogue_in(tmp_path, source) as cat:
        cat.harvest(CRAWL)
        keys = pa.table({"key": ["com,example)/a", "com,example)/c", "com,example)/d"]})
        found = cat.join(keys, tmp_path / "found", how=how, crawls=CRAWL).to_arrow()
    shown = ["input_key", "captures", "first", "statuses"] if how == "crawls" else ["input_key", "warc_record_offset"]
    assert [tuple(row.values()) for row in found.select(shown).to_pylist()] == expected
