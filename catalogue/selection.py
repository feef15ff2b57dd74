"""Which stored crawls words such as ``latest`` and ``2021..2023`` select."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from catalogue.commoncrawl.crawls import (
    check_crawl_name,
    has_columnar_index,
    incomplete_ranges,
    may_be_unlisted,
    newest_first,
    no_columnar_index,
    parse_crawl_words,
    plain_names,
    range_ends,
    select_crawls,
    select_subsets,
    suggest_crawl,
)
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.indexes import CDX, COLUMNAR
from catalogue.errors import NotHarvested, QueryError, UnknownCrawl
from catalogue.formatting import plural
from catalogue.session import Session
from catalogue.store.stored_blocks import crawls_with_blocks
from catalogue.store.stored_lists import listed_crawls


def several(words: str | Iterable[str]) -> list[str]:
    """Return one word or several as a list."""
    return [words] if isinstance(words, str) else list(words)


def select_stored(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> list[str]:
    """Return which of the ``stored`` crawls the words select; messages advise to harvest these subsets.

    Raises:
        NotHarvested: if a selected crawl is not stored.
        UnknownCrawl: if it does not exist.
    """
    selection = _Selection(session.dataset, stored, subsets, lambda: listed_crawls(session.store))
    return selection.select(several(crawls))


def needs_crawl_list(session: Session, crawls: Sequence[str], index: str) -> bool:
    """Return whether words for crawls of a query need the list of crawls, and none is stored.

    It says which crawls of a range or a year are not stored; ``latest`` and ``all`` mean stored crawls, if there are
    any.
    """
    words = parse_crawl_words(crawls)
    others = {*words}.difference(plain_names(words))
    has_store = session.store_path.exists()
    if session.dataset_name or not others or (has_store and listed_crawls(session.store)):
        return False
    if not has_store or index == CDX:
        return index != COLUMNAR
    is_stored = session.store.keys("files") or crawls_with_blocks(session.store)
    return not others <= {"latest", "all"} or not (is_stored or index == COLUMNAR)


def select_known(session: Session, stored: Collection[str], crawls: str | Iterable[str]) -> list[str]:
    """Return the crawls that the words select, newest first, whether they are stored or not.

    If anything is stored, ``latest`` and ``all`` mean stored crawls.

    Args:
        session: with the list of crawls, if it is stored.
        stored: the stored crawls.
        crawls: the words.

    Raises:
        QueryError: if words other than names need the list of crawls, and it is not stored.
        UnknownCrawl: if a crawl would be listed if it existed.
    """
    if not stored:
        return select_listed(session, crawls)
    words = parse_crawl_words(several(crawls), stored)
    needs_list = not {"latest", "all", *stored}.issuperset(words)
    listed = listed_crawls(session.store) if needs_list and session.store_path.exists() else []
    known = {*stored, *listed}
    chosen: set[str] = set()
    for word in words:
        if word not in known and next(plain_names([word]), None):
            chosen.update(select_listed(session, word))
        else:
            chosen.update(select_crawls([word], newest_first(stored if word in {"latest", "all"} else known)))
    return newest_first(chosen)


def select_listed(session: Session, crawls: str | Iterable[str]) -> list[str]:
    """Return the crawls that the words select, newest first, whether they are stored or not.

    Raises:
        QueryError: if words other than names need the list of crawls, and it is not stored.
        UnknownCrawl: if a crawl would be listed if it existed.
    """
    listed = listed_crawls(session.store) if session.store_path.exists() else []
    words = parse_crawl_words(several(crawls), listed)
    plain = [*plain_names(words)]
    if not listed and len(plain) < len(words):
        raise QueryError("the list of crawls is not stored; run: catalogue crawls, or name crawls: --crawl 2022-33")
    for crawl in plain:
        check_crawl_name(crawl, listed)
        if listed and crawl not in listed and not may_be_unlisted(crawl, listed):
            raise UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, listed)}")
    return select_crawls(words, sorted({*listed, *plain}))


def missing_crawls(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each range of crawls of which only some are stored."""
    words, dataset = several(crawls), session.dataset
    if dataset != COMMON_CRAWL or all(word in {"all", *stored} for word in words):
        return ()
    ranges = incomplete_ranges(words, stored, listed_crawls(session.store))
    return tuple(f"{gap}; run: {dataset.harvest_command(closed, subsets)}" for closed, gap in ranges)


def stored_crawls(session: Session, crawls: str | Iterable[str] = "all") -> list[str]:
    """Return the crawls that the words select, newest first, of which footers or the list of blocks are stored.

    Raises:
        NotHarvested: if nothing is stored of one.
    """
    check_store(session, crawls)
    files = (session.dataset.file(path) for path in session.store.keys("files"))
    return select_stored(session, {file.crawl for file in files if file} | {*crawls_with_blocks(session.store)}, crawls)


def stored_crawl(session: Session, crawl: str) -> str:
    """Return the one stored crawl that a word selects.

    Raises:
        QueryError: if it is not stored, or the word selects several.
    """
    check_store(session, crawl)
    chosen, *others = select_stored(session, session.metadata().crawls, crawl)
    if others:
        count = plural(1 + len(others), "crawl")
        raise QueryError(f"{crawl!r} selects {count}, and one can be shown; name it, such as {chosen}")
    return chosen


def check_store(session: Session, crawls: str | Iterable[str], subsets: str | Iterable[str] = ()) -> None:
    """Raise ``NotHarvested`` with the names of the crawls if there is no store."""
    if session.dataset_name is None and not session.store_path.exists():
        selection = _Selection(session.dataset, (), select_subsets(several(subsets)), tuple)
        selection.select(several(crawls), nothing=f"nothing is harvested in {session.data} yet")


@dataclass(frozen=True, slots=True)
class _Selection:
    """A selection from the stored crawls of a dataset."""

    dataset: Dataset
    stored: Collection[str]
    subsets: Sequence[str]
    listed: Callable[[], Collection[str]]
    """Returns all crawls, as far as known."""

    def select(self, words: list[str], *, nothing: str = "nothing is harvested yet") -> list[str]:
        words = parse_crawl_words(words, self.stored)
        if not self.stored:
            for word in plain_names(words) if self.dataset == COMMON_CRAWL else ():
                self._check_listed(check_crawl_name(word, self.listed()))
            plain = [word for word in words if word not in {"latest", "all"}]
            raise self._not_stored(next(iter(plain), None), nothing, ",".join(plain))
        unknown = self.dataset.unknown_name(words, self.stored)
        chosen = [unknown] if unknown else self._chosen(words)
        for crawl in chosen:
            if crawl not in self.stored:
                if self.dataset == COMMON_CRAWL:
                    self._check_listed(crawl)
                raise self._not_stored(crawl, f"{crawl} is not harvested yet")
        return chosen

    def _chosen(self, words: list[str]) -> list[str]:
        ends = [end for end in range_ends(words) if end not in self.stored]
        if ends:
            return [check_crawl_name(end, self.stored) for end in ends] if self.dataset == COMMON_CRAWL else ends
        try:
            return select_crawls(words, sorted(self.stored), every=self.dataset != COMMON_CRAWL)
        except UnknownCrawl:
            for word in words:
                with suppress(UnknownCrawl):  # unless crawls of that range or year are listed
                    known = sorted({*self.stored, *self.listed()})
                    if not {*self.stored}.intersection(select_crawls([word], known)):
                        raise self._not_stored(word, f"nothing of {word} is harvested yet") from None
            raise

    def _check_listed(self, crawl: str) -> None:
        """Raise UnknownCrawl for a crawl that would be listed if it existed."""
        listed = self.listed()
        if has_columnar_index(crawl) and crawl not in listed and not may_be_unlisted(crawl, listed):
            raise UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, {*self.stored, *listed})}")

    def _not_stored(self, crawl: str | None, what: str, words: str = "") -> NotHarvested:
        such_as = crawl or ("latest" if self.dataset == COMMON_CRAWL else self.dataset.name)
        single = next(plain_names([such_as]), None)
        if self.dataset == COMMON_CRAWL and single and not has_columnar_index(single):
            return NotHarvested(no_columnar_index(single), crawl=single)
        harvest = (words or such_as, self.subsets)
        message = f"{what}; run: {self.dataset.harvest_command(*harvest)}"
        return NotHarvested(message, crawl=crawl and single, call=self.dataset.harvest_call(*harvest))
