"""How large the store and the catalogue become, and how long it takes to make them, add to them and plan with them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeVar

from benchmarks.crawls import crawl_list, domain_in, make_template, manifest, path_of, put_names
from benchmarks.processes import wait_for_quiet
from benchmarks.report import say, table
from catalogue import views
from catalogue.catalogue import CATALOGUE_NAME, STORE_NAME, Catalogue
from catalogue.crawl import COLLINFO, manifest_path
from catalogue.examine import FileFacts, file_facts
from catalogue.footer import decode_footer
from catalogue.plan import ReadPlan
from catalogue.settings import Settings
from catalogue.store import Held, Store

FILES = 300
_ALL, _SOME = 120, 10
"""Crawls with a columnar index, about, by the end of 2026; and those measured unless all are asked for."""
_NOWHERE = "http://127.0.0.1:9/"
"""A source that is never asked."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Measured:
    """What so many crawls come to."""

    crawls: int
    store_bytes: int
    catalogue_bytes: int
    from_scratch: float
    """Seconds to make the catalogue from the store alone, every footer decoded."""
    last_crawl: float
    """Seconds to add the last crawl to the catalogue of the others, its facts known, as after its harvest."""
    plan: float
    """Seconds to plan a domain that may be in one file of each crawl."""
    reads: int
    """Files that this plan reads."""


def main(*, full: bool) -> None:
    """Measure and print; ``full`` for as many crawls as there are, which takes a quarter of an hour and 2 GB."""
    one, several = _measure(1), _measure(_ALL if full else _SOME)
    table(
        f"Crawls of {FILES} files",
        ["crawls", "store MB", "catalogue MB", "from scratch s", "one more crawl s", "plan s", "files read"],
        [
            _row("1", one),
            _row(str(several.crawls), several),
            *([] if full else [_row(f"{_ALL}, by extrapolation", _extrapolated(one, several))]),
        ],
    )


def _row(name: str, of: Measured) -> list[str | int | float]:
    sizes = of.store_bytes / 1e6, of.catalogue_bytes / 1e6
    return [name, *sizes, of.from_scratch, of.last_crawl, of.plan, of.reads]


def _extrapolated(one: Measured, several: Measured) -> Measured:
    """On the straight line through two measurements."""

    def line(low: float, high: float) -> float:
        return low + (high - low) * (_ALL - one.crawls) / (several.crawls - one.crawls)

    return Measured(
        crawls=_ALL,
        store_bytes=round(line(one.store_bytes, several.store_bytes)),
        catalogue_bytes=round(line(one.catalogue_bytes, several.catalogue_bytes)),
        from_scratch=line(one.from_scratch, several.from_scratch),
        last_crawl=line(one.last_crawl, several.last_crawl),
        plan=line(one.plan, several.plan),
        reads=round(line(one.reads, several.reads)),
    )


def _measure(count: int) -> Measured:
    crawls = [f"CC-MAIN-{2014 + number // 10}-{5 + 5 * (number % 10):02}" for number in range(count)]
    with TemporaryDirectory(prefix="benchmarks-") as name:
        path = Path(name) / CATALOGUE_NAME
        with Store(Path(name) / STORE_NAME, create=True) as store:
            store.put("documents", [(COLLINFO, _value(crawl_list(crawls)))])
            for crawl in crawls[:-1]:
                say(f"{count} crawls: storing {crawl}")
                _put(store, crawl)
            views.refresh(path, store, facts={file: facts for crawl in crawls[:-1] for file, facts in _facts(crawl)})
            _put(store, crawls[-1])
            facts = dict(_facts(crawls[-1]))
            _, last_crawl = _timed(partial(views.refresh, path, store, facts=facts))
            say(f"{count} crawls: from scratch")
            path.unlink()
            _, from_scratch = _timed(partial(views.refresh, path, store))
        say(f"{count} crawls: planning")
        with Catalogue(Path(name), Settings(source=_NOWHERE, cache=Path(name))) as catalogue:
            plans = [_timed(partial(_plan, catalogue, number)) for number in (150, 7, 299)]
        return Measured(
            crawls=count,
            store_bytes=(Path(name) / STORE_NAME).stat().st_size,
            catalogue_bytes=path.stat().st_size,
            from_scratch=from_scratch,
            last_crawl=last_crawl,
            plan=median(seconds for _, seconds in plans),
            reads=len(plans[0][0].files),
        )


def _put(store: Store, crawl: str) -> None:
    """Store a whole crawl."""
    template = make_template()
    store.put("documents", [(manifest_path(crawl), _value(manifest(crawl, FILES)))])
    numbers = range(FILES)
    store.put("files", [(path_of(crawl, number), _value(template.footer_of(crawl, number))) for number in numbers])


def _value(data: bytes) -> Held:
    return Held(
        data=data,
        size=make_template().size,
        etag='"29d92fa9b3a3d3f9e4bb9b5bbd1cbd1c-15"',
        last_modified="Sun, 30 Jan 2022 03:04:05 GMT",
        source=_NOWHERE,
        taken="2026-11-21T12:00:00+00:00",
    )


def _facts(crawl: str) -> Iterator[tuple[str, FileFacts]]:
    """What an examiner would find in the footers of a crawl."""
    template = make_template()
    facts = file_facts(decode_footer(template.footer, template.size))

    def named(key: str | None, number: int) -> str | None:
        return key and put_names(key.encode(), crawl, number).decode()

    for number in range(FILES):
        groups = tuple(
            replace(
                group,
                min_url_surtkey=named(group.min_url_surtkey, number),
                max_url_surtkey=named(group.max_url_surtkey, number),
            )
            for group in facts.row_groups
        )
        yield path_of(crawl, number), replace(facts, row_groups=groups)


def _plan(catalogue: Catalogue, number: int) -> ReadPlan:
    return catalogue.captures(f"*.{domain_in(number)}").plan


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    wait_for_quiet()
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started
