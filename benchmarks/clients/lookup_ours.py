"""Our own way: what is held of footers and page indexes decides what is asked for."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.clients.lookup_asking import COLUMNS, Question, Steps, start
from benchmarks.real_size import CRAWL
from catalogue.catalogue import Catalogue
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.surt import Match

_PATTERNS = {
    ("com,saffron-madeup)/", "com,saffron-madeup)/!"): ("https://saffron-madeup.com/", None),
    ("com,saffron-madeup)", "com,saffron-madeup*"): ("saffron-madeup.com", Match.HOST),
    ("com,saffron-madeup)", "com,saffron-madeup-"): ("*.saffron-madeup.com", None),
    ("coop,", "coop-"): ("*.coop", None),
}
"""The same questions as a user puts them."""


def ours(question: Question) -> Steps:
    """Prepare three folders, in each of which one thing more is held.

    Cold knows which files there are, as the others are told, and not their footers. No page is kept from one step to
    the next, and each step is a catalogue of its own; but for the second question, which is put to one that has
    answered the same before, as the others are warm.
    """
    pattern, match = _PATTERNS[question.low, question.high]
    folder = Path(mkdtemp())
    settings = Settings(source=question.source, cache=folder / "cache", cache_size=0, latency=0.03, bandwidth=40e6)

    def ask(data: Path, columns: tuple[str, ...] = COLUMNS, *, harvest: bool = False) -> int:
        with Catalogue(Session(data, settings)) as cat:
            if harvest:
                cat.harvest(CRAWL)
            rows: int = cat.captures(pattern, match=match, columns=columns).to_arrow().num_rows
            return rows

    def prepared(name: str, *prepare: Callable[[Path], object]) -> Path:
        data = folder / name
        with Catalogue(Session(data, settings)) as cat:
            cat.harvest(CRAWL)
        for step in prepare:
            step(data)
        return data

    def forget_footers(data: Path) -> None:
        with Store(data / "footers.sqlite") as store:
            store.delete("files", store.keys("files"))

    cold, footers, indexes = (
        prepared("cold", forget_footers),
        prepared("footers"),
        prepared("indexes", ask),
    )
    everything = prepared("everything", lambda data: ask(data, CDX_COLUMNS))
    kept = Catalogue(Session(indexes, settings))
    kept.captures(pattern, match=match, columns=COLUMNS).to_arrow()

    def ask_again() -> int:
        rows: int = kept.captures(pattern, match=match, columns=COLUMNS).to_arrow().num_rows
        return rows

    return {
        "cold": lambda: ask(cold, harvest=True),
        "footers held": lambda: ask(footers),
        "indexes held": lambda: ask(indexes),
        "second question": ask_again,
        "indexes held, all 14 CDX columns": lambda: ask(everything, CDX_COLUMNS),
    }


if __name__ == "__main__":
    start(ours)
