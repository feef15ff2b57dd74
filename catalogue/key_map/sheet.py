"""What is drawn of a map, laid out in points and then handed to matplotlib."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from catalogue.key_map.colours import DARK, LIGHT
from catalogue.key_map.key_map import Axis, Bar, Lane, State, joined, shortened
from catalogue.surt import Keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE, _TEXT, _SMALL = 10.0, 8.0, 7.0
"""Points of letters: of the title, of what lanes are called, and of keys."""
_CHARACTER = 0.6
"""How wide one is, about, of how high it is."""
_MARGIN = 10.0
"""Points on either side."""
_ROW = {1: 14.0, 6: 8.0, 15: 5.0, 99: 3.0}
"""Points of a row of bars, by how many rows there are at most."""
_EDGED = 3.0
"""Points that bars must have on average, if each is to have an edge."""
_ACROSS = 8
"""Places of what is asked for that are marked across all of an axis; where they are more, above it."""
_TICK = 4.0
"""Points of such a mark."""
_SEEN = 1.2
"""Points of the narrowest bar that can be seen."""
_READ_SEEN = 3.0
"""The same of one that is read, which must not be overlooked."""

_LEFT, _SPARED, _READ = "left alone", "lies there too, need not be read", "read"
_BLIND, _UNBOUNDED = "read on the off chance: its bounds are not known", "left alone, its bounds are not known"
_ASKED = "the keys asked for"
_STYLES: dict[str, dict[str, Any]] = {
    _LEFT: {"facecolor": "left", "edgecolor": "sheet", "linewidth": 0.4},
    _SPARED: {"facecolor": "sheet", "edgecolor": "read", "linewidth": 0.9},
    _READ: {"facecolor": "read", "edgecolor": "sheet", "linewidth": 0.5},
    _BLIND: {"facecolor": "sheet", "edgecolor": "read", "linewidth": 0.6, "hatch": "//////"},
    _UNBOUNDED: {"facecolor": "sheet", "edgecolor": "soft", "linewidth": 0.4, "hatch": "....."},
}
"""By names of ``catalogue.key_map.colours``. Brightness, height and hatching differ too, for print."""
_DASHES = (0, (3, 1.2))

Places: TypeAlias = dict[str, tuple[float, float, float]]
"""Where things begin, end and have their lower edge, by their labels."""
_Side: TypeAlias = Literal["left", "center", "right"]
_Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Text:
    """Something written."""

    x: float
    y: float
    side: _Side
    text: str
    size: float
    weight: str
    style: Literal["normal", "italic"]


class Sheet:
    """What is drawn, from top to bottom: places are points, from the upper left."""

    def __init__(self, width: float, *, scale: float = 1.0) -> None:
        """Begin; bars are higher by ``scale`` than they are by themselves."""
        self._width = width
        self._scale = scale
        self.height = 4.0
        self.bars = 0.0
        """Points of ``height`` that bars take, and the rest does not."""
        self._texts: list[_Text] = []
        self._boxes: dict[str, list[_Box]] = {}
        self._marks: list[_Box] = []
        self._lines: list[list[tuple[float, float]]] = []

    def fitting(self, size: float, share: float = 1.0) -> int:
        """How many characters fit into a share of the width."""
        return max(8, int((self._width - 2 * _MARGIN) * share / (size * _CHARACTER)))

    def title(self, what: str, of: str, *lines: str) -> None:
        """A title, if it fits in one line, and more lines."""
        what, room = drawable(what), self.fitting(1.15 * _TITLE)  # bold letters are wider
        fits = len(what) + 1 + len(of) <= room
        self._write(0, "left", f"{what} {of}" if fits else shortened(what, width=room), _TITLE, weight="bold")
        self.height += 16
        for line in lines if fits else (of, *lines):
            for fitted in _wrapped(line, self.fitting(_TEXT)):
                self._write(0, "left", fitted, _TEXT)
                self.height += 11
        self.height += 7

    def axis(
        self,
        axis: Axis,
        keys: Keys,
        names: Iterable[tuple[str, str]],
        *,
        zoom: tuple[Places, str] = ({}, ""),
    ) -> Places:
        """Lanes above each other, and below them what keys there are.

        Args:
            axis: to be drawn.
            keys: what they are.
            names: of the lanes, and what is said of them.
            zoom: where things of an axis above lie, and of which of them this one shows the inside.

        Returns:
            Where those that are read are.
        """
        top = self.height
        found: Places = {}
        for lane, (name, count) in zip(axis.lanes, names, strict=True):
            self._name(name, count)
            if lane is axis.lanes[0]:
                self._zoom(*zoom)
                top = self.height
            found |= self._lane(lane, axis.marks)
        marks = list(joined(axis.marks, _READ_SEEN / self._inner))
        bottom = self.height - 1 if len(marks) <= _ACROSS else top + 1
        self._marks += ((start, end, top + 1 - _TICK, bottom) for start, end in marks)
        self._keys(axis, keys)
        self.height += 10
        return found

    def _name(self, name: str, count: str) -> None:
        """What a lane is called on the left, and on the right what is said of it; else on two lines."""
        room = self.fitting(_TEXT)
        if len(name) + 2 + len(count) <= room:
            self._write(0, "left", name, _TEXT)
            self._write(1, "right", count, _TEXT)
            self.height += 11
            return
        for line in (*_wrapped(name, room), *_wrapped(count, room)):
            self._write(0, "left", line, _TEXT)
            self.height += 11

    def rest(self, count: int, one: str, many: str) -> None:
        """Say what is not drawn."""
        if count > 0:
            self.height -= 4
            self._write(0, "left", f"and {count:,} {one if count == 1 else many}, not drawn", _SMALL, style="italic")
            self.height += 14

    def legend(self) -> None:
        """Leave room for what styles mean."""
        there = [*(style for style in _STYLES if style in self._boxes), *([_ASKED] if self._marks else [])]
        self._legend = there, self.height
        self.height += 13 * -(-len(there) // self._columns) + 2

    _legend: tuple[list[str], float] = ([], 0.0)

    @property
    def _columns(self) -> int:
        return max(1, min(3, int(self._width // 150)))

    @property
    def _inner(self) -> float:
        return self._width - 2 * _MARGIN

    def _write(
        self,
        x: float,
        side: _Side,
        text: str,
        size: float,
        *,
        weight: str = "normal",
        style: Literal["normal", "italic"] = "normal",
    ) -> None:
        self._texts.append(_Text(x, self.height + size * 0.6, side, drawable(text), size, weight, style))

    def _zoom(self, places: Places, name: str) -> None:
        """Lines from something above to what is drawn next."""
        if place := places.get(name):
            start, end, bottom = place
            under = self.height - 12
            for x, edge in ((start, 0.0), (end, 1.0)):
                self._lines.append([(x, bottom), (x, bottom + 3), (edge, under)])

    def _lane(self, lane: Lane, marks: Iterable[tuple[float, float]]) -> Places:
        bounded = [bar for bar in lane.bars if bar.bounded]
        rows = max((bar.row + 1 for bar in bounded), default=0)
        high = self._scale * next((high for most, high in _ROW.items() if rows <= most), 3.0)
        self.bars += rows * high
        average = self._inner * sum(bar.end - bar.start for bar in bounded) / max(1, len(bounded))
        by_place: dict[tuple[str, int], list[tuple[float, float]]] = {}
        found: Places = {}
        for bar, style in _styled(bounded, list(marks)):
            place = bar.wide((_READ_SEEN if style in {_READ, _BLIND} else _SEEN) / self._inner)
            by_place.setdefault((style, bar.row), []).append(place)
            if style in {_READ, _BLIND}:
                others = found.get(bar.label, (*place, 0.0))  # it may have several bars
                found[bar.label] = (min(place[0], others[0]), max(place[1], others[1]), self.height + rows * high)
        for (style, row), places in by_place.items():
            thin = high * (0.22 if style == _LEFT else 0.04)
            # Where each has its own edges, and they are narrow, one would see nothing but edges.
            each = joined(places, _SEEN / self._inner) if average < _EDGED else places
            self._boxes.setdefault(style, []).extend(
                (start, self.height + row * high + thin, end - start, high - 2 * thin) for start, end in each
            )
        self.height += rows * high
        if lane.unbounded:
            style = _BLIND if any(bar.state is State.BLIND for bar in lane.bars if not bar.bounded) else _UNBOUNDED
            self._boxes.setdefault(style, []).append((0.0, self.height + 2, 1.0, 6.0))
            self.height += 9
            self._write(
                0, "left", f"{lane.unbounded:,} of them without bounds may hold any key", _SMALL, style="italic"
            )
            self.height += 11
        self.height += 3
        return found

    def _keys(self, axis: Axis, keys: Keys) -> None:
        """What lies at some places of an axis."""
        if not (axis.low or axis.high):
            return
        low, high = (drawable(keys.spelt(key)) for key in (axis.low, axis.high))
        ticks = [(place, drawable(keys.spelt(key)).partition("/")[0]) for place, key in axis.ticks]
        if len({host for _, host in ticks}) < len(ticks) or not axis.ticks:  # within one site only paths differ
            width = self.fitting(_SMALL, 0.48)
            self._write(0, "left", shortened(low, high, width=width), _SMALL)
            self._write(1, "right", shortened(high, low, width=width), _SMALL)
        else:
            room, taken = self.fitting(_SMALL, 0.3), 0.0
            until = 1 - self._long(_end_of(ticks[-1][1], room))
            for place, host in ticks:
                text = _end_of(host, room)
                side: _Side = "left" if place == 0 else "right" if place == 1 else "center"
                start = place - self._long(text) * {"left": 0.0, "right": 1.0, "center": 0.5}[side]
                if side == "center" and (start < taken or start + self._long(text) > until):
                    continue  # it would be written over another
                taken = start + self._long(text)
                self._lines.append([(place, self.height - 3), (place, self.height)])
                self._write(place, side, text, _SMALL)
        self.height += 10

    def _long(self, text: str) -> float:
        """How much of the width a key takes, and what is left free behind it."""
        return (len(text) + 3) * _SMALL * _CHARACTER / self._inner

    def onto(self, ax: "Axes") -> None:
        """Draw it."""
        from matplotlib.collections import LineCollection, PolyCollection  # noqa: PLC0415 - an extra, slow to import
        from matplotlib.lines import Line2D  # noqa: PLC0415 - likewise
        from matplotlib.patches import Patch  # noqa: PLC0415 - likewise

        ax.clear()
        colours = _colours_on(ax)
        styles = {name: {key: colours.get(value, value) for key, value in _STYLES[name].items()} for name in _STYLES}
        ax.set_axis_off()
        side = _MARGIN / self._inner
        ax.set_xlim(-side, 1 + side)
        ax.set_ylim(self.height, 0)
        for name, style in styles.items():
            boxes = [_corners(*box) for box in self._boxes.get(name, [])]
            ax.add_collection(PolyCollection(boxes, label=name, **style), autolim=False)
        ax.add_collection(
            LineCollection(self._lines, colors=colours["soft"], linewidths=0.6, linestyles=(0, (1, 1.5))), autolim=False
        )
        for start, end, top, bottom in self._marks:
            if (end - start) * self._inner > _READ_SEEN:
                ax.fill_between([start, end], top, bottom, color=colours["mark"], alpha=0.15, linewidth=0, zorder=0.5)
            for x in {start, end}:
                if bottom - top > _TICK:  # to be seen on what is dark
                    ax.plot([x, x], [top, bottom], color=colours["sheet"], linewidth=2.0)
                ax.plot([x, x], [top, bottom], color=colours["mark"], linewidth=1.1, linestyle=_DASHES)
        for each in self._texts:
            ax.text(
                each.x,
                each.y,
                each.text,
                fontsize=each.size,
                fontweight=each.weight,
                fontstyle=each.style,
                ha=each.side,
                va="center",
                color=colours["ink"],
                parse_math=False,
                usetex=False,
            )
        names, top = self._legend
        if names:
            handles = [
                Line2D([], [], color=colours["mark"], linewidth=1.1, linestyle=_DASHES)
                if name == _ASKED
                else Patch(**styles[name])
                for name in names
            ]
            ax.legend(
                handles,
                names,
                loc="upper left",
                bbox_to_anchor=(0.0, top),
                bbox_transform=ax.transData,
                ncols=self._columns,
                frameon=False,
                fontsize=_SMALL,
                labelcolor=colours["ink"],
                borderaxespad=0.0,
                borderpad=0.0,
            )


def _colours_on(ax: "Axes") -> dict[str, str]:
    """Return the colours for a light or a dark figure; text colour decides where the figure is transparent."""
    from matplotlib import rcParams  # noqa: PLC0415 - an extra, slow to import
    from matplotlib.colors import to_rgba  # noqa: PLC0415 - likewise

    *face, opacity = to_rgba(ax.figure.get_facecolor())
    bright = sum(face) if opacity else 3 - sum(to_rgba(rcParams["text.color"])[:3])
    return LIGHT if bright > 1.5 else DARK  # noqa: PLR2004 - half of red, green and blue


def drawable(text: str) -> str:
    """Without what fonts may lack, which matplotlib warns of: that is written by its number, and rare in keys."""
    return "".join(c if c.isprintable() and (c < "\u0100" or c == "…") else ascii(c)[1:-1] for c in text)


def _styled(bars: Iterable[Bar], marks: list[tuple[float, float]]) -> Iterator[tuple[Bar, str]]:
    """Bars and how they are drawn."""
    for bar in bars:
        if bar.state is State.LEFT:
            at = bisect_right(marks, bar.start, key=lambda mark: mark[1])  # the first that ends behind its beginning
            yield bar, _SPARED if at < len(marks) and marks[at][0] < bar.end else _LEFT
        else:
            yield bar, _READ if bar.state is State.READ else _BLIND


def _corners(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def _end_of(host: str, width: int) -> str:
    """The end of a host's name, by which it is sorted first."""
    return host if len(host) <= width else "…" + host[1 - width :]


def _wrapped(text: str, width: int) -> Iterator[str]:
    """A text in lines."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
