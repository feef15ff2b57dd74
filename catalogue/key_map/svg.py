"""The map of a key space as SVG: what is drawn where, as wide as its place allows and with letters of one size."""

from dataclasses import dataclass

from catalogue.formatting import plural
from catalogue.key_map.key_map import Axis, Bar, KeySpace, Lane, State, joined, part, shortened

_UNITS = 10_000
"""That the width has where bars are drawn, however wide it is."""

_HEADING, _LINE, _GAP = 24, 16, 8
"""Pixels: a heading, a line of small letters, and what is left free between axes."""
_ROW = {1: 14, 6: 9, 99: 6}
"""Pixels of a row, by how many there are at most."""
_NARROW = 20
"""Characters of a key, two of which stand side by side on a telephone."""
_MANY = 60
"""Bars in a lane, above which they are drawn as one and without lines between them."""
_VISIBLE = 1 / 200
"""Of the width, what can be seen on a telephone."""
_LEFT_OF, _RIGHT_OF = 0.3, 0.7
"""Where on an axis what is written at a place has to keep to one side of it."""


@dataclass(frozen=True, slots=True)
class Text:
    """Something written."""

    x: str
    """As SVG has it: a share of the width."""
    y: int
    """Of its baseline, in pixels."""
    anchor: str
    """``start``, ``middle`` or ``end``."""
    style: str
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """Bars that are drawn at once, side by side; heights are in pixels."""

    y: int
    height: int
    path: str
    style: str

    @property
    def view(self) -> str:
        """The units of its path: as many to the whole width, however wide that is, and pixels from top to bottom."""
        return f"0 0 {_UNITS} {self.height}"


@dataclass(frozen=True, slots=True)
class Box:
    """A bar with a name of its own, of which all places are shares of the width."""

    x: str
    width: str
    y: int
    height: int
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the keys asked for lie, across the lanes of an axis."""

    start: str
    end: str
    width: str
    """A share of the width as well; empty if nobody could see it."""
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it."""

    height: int
    texts: tuple[Text, ...]
    bands: tuple[Band, ...]
    boxes: tuple[Box, ...]
    marks: tuple[Mark, ...]


def draw(space: KeySpace, asked: str) -> Drawing:
    """The map.

    Args:
        space: what it shows.
        asked: the pattern, to be written where its keys lie.
    """
    pen = _Pen()
    pen.heading(f"All files of {space.crawl}")
    pen.axis(space.files, "file", asked)
    if space.groups:
        pen.heading("Row groups of the files that are read")
        for axis in space.groups:
            pen.axis(axis, "row group", name=f"{part(axis.name)} of {axis.lanes[0].name}")
        pen.rest(space.read_files - len(space.groups), "more file")
    if space.pages:
        pen.heading("Pages of the row groups that are read")
        for axis in space.pages:
            path, _, ordinal = axis.name.partition("#")
            pen.axis(axis, "page", name=f"{part(path)}, row group {ordinal}")
        pen.rest(space.read_groups - len(space.pages), "more row group")
    return Drawing(pen.y, tuple(pen.texts), tuple(pen.bands), tuple(pen.boxes), tuple(pen.marks))


class _Pen:
    """Draws from top to bottom."""

    def __init__(self) -> None:
        self.y = 0
        self.texts: list[Text] = []
        self.bands: list[Band] = []
        self.boxes: list[Box] = []
        self.marks: list[Mark] = []

    def heading(self, text: str) -> None:
        """What the axes below show."""
        self.y += _GAP if self.y else 0
        self._write("0", "start", "heading", text, _HEADING)

    def axis(self, axis: Axis, noun: str, asked: str = "", *, name: str = "") -> None:
        """An axis: what was asked is written where it lies, if given, and lanes have their own names unless given."""
        if asked and axis.marks:
            start, end = axis.marks[0][0], axis.marks[-1][1]
            x, anchor = _side((start + end) / 2, start, end)
            self._write(x, anchor, "asked", shortened(asked, width=2 * _NARROW), _LINE)
        top = self.y + (_LINE if name else 0)
        for lane in axis.lanes:
            read = lane.count(State.READ, State.BLIND)
            self._write("100%", "end", "lane", f"{read:,} of {lane.size:,} read", 0)
            self._write("0", "start", "lane", name or lane.name, _LINE)
            self._lane(lane, noun)
        for start, end in joined(axis.marks, _VISIBLE):
            width = _share(end - start) if end - start > _VISIBLE else ""
            self.marks.append(Mark(_share(start), _share(end), width, top, self.y - top))
        if axis.low or axis.high:
            self._write("0", "start", "key", shortened(axis.low, axis.high, width=_NARROW), 0)
            self._write("100%", "end", "key", shortened(axis.high, axis.low, width=_NARROW), _LINE)
        self.y += _GAP

    def rest(self, count: int, noun: str) -> None:
        if count > 0:
            self._write("0", "start", "note", f"and {plural(count, noun)}, not drawn", _LINE)
            self.y += _GAP

    def _write(self, x: str, anchor: str, style: str, text: str, height: int) -> None:
        self.texts.append(Text(x, self.y + (height or _LINE) - (9 if height == _HEADING else 4), anchor, style, text))
        self.y += height

    def _lane(self, lane: Lane, noun: str) -> None:
        bounded = [bar for bar in lane.bars if bar.bounded]
        rows = max((bar.row + 1 for bar in bounded), default=0)
        height = next((height for most, height in _ROW.items() if rows <= most), 6)
        style = " dense" if len(bounded) > _MANY or rows > 1 else ""
        left = [bar for bar in bounded if bar.state is State.LEFT]
        if left:
            self.bands.append(Band(self.y, rows * height, _path(left, height, thin=True), f"left{style}"))
        others = [bar for bar in bounded if bar.state is not State.LEFT]
        if len(others) > _MANY:
            self.bands.append(Band(self.y, rows * height, _path(others, height, thin=False), f"read{style}"))
        else:
            self.boxes += [self._box(bar, height) for bar in others]
        self.y += rows * height
        if lane.unbounded:
            self.boxes.append(Box("0%", "100%", self.y + 1, 8, "unbounded", "may hold any key"))
            self.y += 10
            self._write("0", "start", "note", f"{plural(lane.unbounded, noun)} without bounds may hold any key", _LINE)
        self.y += 4

    def _box(self, bar: Bar, height: int) -> Box:
        style = "read" if bar.state is State.READ else "blind"
        name = part(bar.label) if bar.label.endswith(".parquet") else bar.label
        at = self.y + bar.row * height
        start, end = bar.wide(_VISIBLE)
        return Box(_share(start), _share(end - start), at, height - 1, style, f"{name}: {bar.state.value}")


def _path(bars: list[Bar], height: int, *, thin: bool) -> str:
    """Bars as one path; those that are left alone are thinner, so that colour is not all that tells them apart."""
    inset = height // 3 if thin else 0
    tall = height - 2 * inset - (0 if thin else 1)
    steps = []
    for bar in bars:
        start, end = (round(place * _UNITS) for place in bar.wide(_VISIBLE))
        steps.append(f"M{start} {bar.row * height + inset}h{end - start}v{tall}h{start - end}z")
    return "".join(steps)


def _side(middle: float, start: float, end: float) -> tuple[str, str]:
    """Where to write what belongs to a place, and which end of it stands there."""
    if middle < _LEFT_OF:
        return _share(start), "start"
    if middle > _RIGHT_OF:
        return _share(end), "end"
    return _share(middle), "middle"


def _share(place: float) -> str:
    return f"{100 * place:.2f}%"
