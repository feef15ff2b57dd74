"""What the maps show, in which order and in which words."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from catalogue.errors import QueryError
from catalogue.formatting import plural
from catalogue.key_map.key_map import MOST_ROWS, Axis, KeySpace, Lane, State, part
from catalogue.key_map.sheet import Sheet
from catalogue.plan.plan import ReadPlan
from catalogue.settings import install_command
from catalogue.surt import Keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_crawl(crawl: str, axis: Axis, keys: Keys, ax: "Axes | None" = None) -> "Axes":
    """The files of a crawl and their row groups, see ``crawl_axis``, along its keys.

    Args:
        crawl: its name.
        axis: with a lane for the files of each subset, and one for their row groups.
        keys: what they are.
        ax: where to draw; a figure of its own unless given.

    Raises:
        QueryError: if matplotlib is not installed.
    """

    def draw(sheet: Sheet) -> None:
        sheet.title(crawl, "", "which keys its files hold, and the row groups in them")
        sheet.axis(axis, keys, [(lane.name, _depth(lane)) for lane in axis.lanes])

    return _drawn(draw, ax)


def draw_question(space: KeySpace, plan: ReadPlan, ax: "Axes | None" = None) -> "Axes":
    """The way of a question through a crawl: its files, their row groups, and the pages of these.

    Args:
        space: what is drawn.
        plan: whose reads are shown.
        ax: where to draw; a figure of its own unless given.

    Raises:
        QueryError: if matplotlib is not installed.
    """

    def draw(sheet: Sheet) -> None:
        asked, more = plan.query.patterns, len(plan.query.patterns) - 1
        keys = plan.query.table.keys
        what, of = f"{asked[0]}{f' and {more:,} more' if more else ''}", f"in {space.crawl}"
        sheet.title(what, of, *_told(space, plan))
        overview = sheet.axis(space.files, keys, _read_of(space.files, "file"))
        sheet.rest(space.read_files - len(space.groups), "more file that is read", "more files that are read")
        zoomed = None
        for axis in space.groups:
            name = f"row groups of {part(axis.name)}, {axis.lanes[0].name}"
            inside = overview if len(space.groups) == 1 else {}  # lines to several would cross
            zoom = (inside, axis.name.rpartition("/")[2])
            zoomed = sheet.axis(axis, keys, _read_of(axis, "row group", name), zoom=zoom)
        rest = space.read_groups - len(space.pages)
        if space.pages:
            sheet.rest(rest, "more row group that is read", "more row groups that are read")
        for axis in space.pages:
            path, _, ordinal = axis.name.rpartition("#")
            inside = zoomed if len(space.groups) == len(space.pages) == 1 and zoomed else {}
            name = f"pages of keys of row group {ordinal} of {part(path)}"
            sheet.axis(axis, keys, _read_of(axis, "page", name), zoom=(inside, f"row group {ordinal}"))
        sheet.legend()

    return _drawn(draw, ax)


def _told(space: KeySpace, plan: ReadPlan) -> list[str]:
    """What is read, in words."""
    pages = "" if space.read_pages is None else f", {plural(space.read_pages, 'page')} of keys"
    files = sum(lane.size for lane in space.files.lanes)
    of = plan.query.table
    others = len({file.crawl for path in plan.paths if (file := of.file(path))} - {space.crawl})
    groups = f"{space.read_groups:,} of {plural(space.all_groups, 'row group')}"
    found = [
        f"{space.read_files:,} of {plural(files, 'file')}, {groups}{pages}",
        plan.price + (f" in all, those of {plural(others, 'other crawl')} among them" if others else ""),
    ]
    if plan.indexes:
        found.append("page indexes are fetched first: pages can be drawn when they are here, see fetch_indexes")
    return found


def _read_of(axis: Axis, noun: str, name: str = "") -> list[tuple[str, str]]:
    """What each lane of an axis is called, and how much of it is read."""
    return [
        (
            name or f"{noun}s of {lane.name}",
            f"{lane.count(State.READ, State.BLIND):,} of {plural(lane.size, noun)} read",
        )
        for lane in axis.lanes
    ]


def _depth(lane: Lane) -> str:
    """How many things there are, and how many of them a key may be in."""
    deep = len({bar.row for bar in lane.bars if bar.bounded})
    most = f"{deep:,} or more" if deep == MOST_ROWS else f"up to {deep:,}"
    unbounded = f"; of {lane.unbounded:,} the bounds are not known" if lane.unbounded else ""
    return f"{lane.size:,}" + (f", a key may be in {most} of them" if deep > 1 else "") + unbounded


def _drawn(draw: Callable[[Sheet], None], ax: "Axes | None") -> "Axes":
    """What is drawn on a sheet, on axes, which are made as high as it takes unless given."""
    if find_spec("matplotlib") is None:
        message = f"pictures need matplotlib; run: {install_command('notebook')}"
        raise QueryError(message)
    if ax is None:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra, and slow to import

        width = plt.rcParams["figure.figsize"][0]
        sheet = Sheet(72 * width)
        draw(sheet)
        _, ax = plt.subplots(figsize=(width, sheet.height / 72))
        ax.set_position((0.0, 0.0, 1.0, 1.0))
    else:
        box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())  # in inches
        sheet = Sheet(72 * box.width)
        draw(sheet)
        room = 72 * box.height - (sheet.height - sheet.bars)
        sheet = Sheet(72 * box.width, scale=min(3.0, max(0.3, room / sheet.bars)) if sheet.bars else 1.0)
        draw(sheet)
    sheet.onto(ax)
    return ax
