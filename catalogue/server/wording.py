"""Numbers, sizes and names as people read them."""

from datetime import datetime

from catalogue.keyspace import KeySpace


def number(count: int) -> str:
    """With commas."""
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A time that something takes."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:,.0f} h"  # noqa: PLR2004


def clock(time: datetime) -> str:
    """A time, UTC, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def part(path: str) -> str:
    """The name of an index file, without what makes it unlike those of other crawls: ``part-00007``."""
    name = path.rpartition("/")[2]
    return "-".join(name.split("-")[:2]).removesuffix(".parquet")


def told(space: KeySpace, *, enough: bool) -> list[str]:
    """What the map of a key space shows, in sentences.

    Args:
        space: that is drawn.
        enough: whether enough was found before all was read that might hold some.
    """
    files = sum(lane.size for lane in space.files.lanes)
    lanes = ", ".join(f"{lane.size:,} in {lane.name}" for lane in space.files.lanes)
    read = f"{space.read_files:,} of them {'is' if space.read_files == 1 else 'are'} read for this question"
    found = [f"{plural(files, 'file')} of {space.crawl} ({lanes}) hold its keys; {read}."]
    if space.read_files:
        are, it = ("is", "it") if space.read_groups == 1 else ("are", "them")
        groups = f"Of {plural(space.all_groups, 'row group')} {space.read_groups:,} {are} read"
        pages = "" if space.read_pages is None else f", and in {it} {plural(space.read_pages, 'page')} of keys"
        found.append(f"{groups}{pages}; nothing else is fetched.")
    if enough:
        found.append("What else might hold some is left alone, because enough was found before.")
    if any(lane.overlapping for axis in space.groups for lane in axis.lanes):
        found.append(
            "Row groups lie over each other, because this crawl's files are two sorted streams zipped together: "
            "a key may be in many of them."
        )
    if space.without_bounds:
        one = space.without_bounds == 1
        found.append(
            f"{plural(space.without_bounds, 'row group')} {'does' if one else 'do'} not say between which keys "
            f"{'it lies' if one else 'they lie'}, and so may hold any."
        )
    return found
