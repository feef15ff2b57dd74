"""Which stored crawls words such as ``latest`` and ``2021..2023`` select."""

from collections.abc import Collection, Iterable, Sequence

from catalogue.commoncrawl.crawls import select_subsets
from catalogue.errors import QueryError
from catalogue.formatting import plural
from catalogue.session import Session
from catalogue.store.stored_lists import known_crawls


def several(words: str | Iterable[str]) -> list[str]:
    """Return one word or several as a list."""
    return [words] if isinstance(words, str) else list(words)


def select_stored(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> list[str]:
    """Return which of the ``stored`` crawls the words select; see ``Dataset.select_stored``."""
    return session.dataset.select_stored(
        stored, several(crawls), subsets=subsets, listed=lambda: known_crawls(session.store)
    )


def missing_crawls(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each range of crawls of which only some are stored; see ``Dataset.gaps``."""
    return session.dataset.gaps(stored, several(crawls), subsets=subsets, listed=lambda: known_crawls(session.store))


def stored_crawls(session: Session, crawls: str | Iterable[str] = "all") -> list[str]:
    """Return the stored crawls that the words select, newest first.

    Raises:
        NotHarvested: if one is not stored.
    """
    check_store(session, crawls)
    files = (session.dataset.file(path) for path in session.store.keys("files"))
    return select_stored(session, {file.crawl for file in files if file}, crawls)


def stored_crawl(session: Session, crawl: str) -> str:
    """Return the one stored crawl that a word selects.

    Raises:
        QueryError: if it is not stored, or the word selects several.
    """
    check_store(session, crawl)
    chosen, *others = select_stored(session, session.metadata().crawls, crawl)
    if others:
        count = plural(1 + len(others), "crawl")
        message = f"{crawl!r} selects {count}, and one can be shown; name it, such as {chosen}"
        raise QueryError(message)
    return chosen


def check_store(session: Session, crawls: str | Iterable[str], subsets: str | Iterable[str] = ()) -> None:
    """Raise ``NotHarvested`` with the names of the crawls if there is no store."""
    if session.dataset_name is None and not session.store_path.exists():
        nothing = f"nothing is harvested in {session.data} yet"
        chosen = select_subsets(several(subsets))
        session.dataset.select_stored((), several(crawls), subsets=chosen, nothing=nothing)
