"""Key maps as SVG, for web pages, notebooks and files.

Horizontal positions are percentages, so that a map is as wide as its place; heights are pixels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

from catalogue.atomic_files import output_file
from catalogue.formatting import plural, printable
from catalogue.key_map.key_map import MAX_ROWS, Axis, Bar, KeySpace, Lane, State, merge_close
from catalogue.plan.plan import ReadPlan
from catalogue.surt.interval import shared_prefix

WIDTH = 720
"""Pixels of a document; a map in a page takes the width of its place."""
_BAND_UNITS = 10_000
_TITLE, _HEADING, _LINE, _GAP = 28, 24, 16, 8
_ROW_HEIGHTS = {1: 14, 6: 9, 99: 6}
"""Pixels of a row of bars, by the greatest number of rows."""
_KEY_CHARACTERS, _LINE_CHARACTERS = 20, 100
"""Characters of a key, two of which fit side by side on a telephone; and of a line of a document."""
_DENSE = 60
"""Bars of a lane above which they are one path, without lines between them."""
_MIN_WIDTH = 1 / 200
"""The narrowest bar, as a share of the width."""

_COLOURS = {
    "paper": ("#fbfaf7", "#161513"),
    "sheet": ("#ffffff", "#1f1d1b"),
    "ink": ("#1d1c1a", "#ece8df"),
    "soft": ("#5b5750", "#aaa498"),
    "rule": ("#dcd7cc", "#37342f"),
    "field": ("#8b867b", "#7d776c"),
    "link": ("#0a5a78", "#86c8e0"),
    "read": ("#c04a12", "#ff9a5c"),
    "left": ("#b9b3a6", "#5d5850"),
    "mark": ("#0a5a78", "#86c8e0"),
    "bad": ("#a3261c", "#ff9c8f"),
    "warn": ("#7a5200", "#f0c463"),
    "warn-sheet": ("#fdf4dd", "#2a2416"),
    "bad-sheet": ("#fdeeeb", "#2f1b18"),
}
LIGHT, DARK = ({name: pair[at] for name, pair in _COLOURS.items()} for at in (0, 1))

STYLE = """
.key-map { display: block; overflow: visible; }
.key-map text { font: 12px/1 var(--sans); fill: var(--soft); paint-order: stroke; stroke: var(--paper); \
stroke-width: 3px; }
.key-map .title { font: 600 15px/1 var(--sans); fill: var(--ink); }
.key-map .heading { font: 600 14px/1 var(--serif); fill: var(--ink); }
.key-map .key { font: 11px/1 var(--mono); }
.key-map .requested { font: 600 11px/1 var(--mono); fill: var(--mark); }
.key-map .note { font-style: italic; }
.key-map .skipped { fill: var(--left); }
.key-map path.skipped, .key-map path.read { stroke: var(--paper); stroke-width: 1; \
vector-effect: non-scaling-stroke; }
.key-map path.dense { stroke: none; }
.key-map .read { fill: var(--read); stroke: var(--paper); stroke-width: 1; }
.key-map .unknown { fill: var(--paper); stroke: var(--read); stroke-width: 1.5; stroke-dasharray: 4 2; }
.key-map .span { fill: var(--mark); fill-opacity: 0.18; }
.key-map .halo { stroke: var(--paper); stroke-width: 4; }
.key-map .mark { stroke: var(--mark); stroke-width: 2; }
.key-map .hatch { stroke: var(--soft); stroke-width: 1.5; }
.key-map .unbounded { stroke: var(--soft); stroke-width: 0.75; fill: url(#key-map-hatch); }
.key-map .background { fill: var(--paper); }
"""
"""CSS of all maps; it needs the variables of ``stylesheet`` and of fonts."""
_FONTS = ".key-map{--sans:system-ui,sans-serif;--serif:Georgia,serif;--mono:ui-monospace,monospace}"
_HATCH = (
    '<defs><pattern id="key-map-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0v5"/></pattern></defs>'
)
_LEGEND = {
    "read": ("read", '<rect class="read" y="2" width="20" height="11"/>'),
    "skipped": ("not read", '<rect class="skipped" y="5" width="20" height="5"/>'),
    "mark": ("requested keys", '<line class="mark" x1="10" x2="10" y1="1" y2="14"/>'),
    "unknown": ("read: bounds not known", '<rect class="unknown" y="2" width="20" height="10"/>'),
    "unbounded": ("bounds not known", '<rect class="unbounded" y="2" width="20" height="11"/>'),
}


def stylesheet(selector: str = ":root") -> str:
    """Return the colours as CSS variables that follow the reader's colour scheme."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


@dataclass(frozen=True, slots=True)
class Picture:
    """A key map as SVG. Notebooks show it; ``save`` writes it to a file."""

    title: str
    sentences: tuple[str, ...]
    height: int
    body: str

    def __repr__(self) -> str:
        return f"<Picture {self.title!r}; save() writes it as SVG>"

    def _repr_svg_(self) -> str:
        return self.document()

    def save(self, path: str | Path) -> None:
        with output_file(Path(path)) as file:
            file.write(self.document().encode())

    def element(self) -> str:
        """Return an element for HTML pages that include ``STYLE``; it has no visible title."""
        return self._svg(f'width="100%" height="{self.height}"', self.body)

    def document(self) -> str:
        """Return an SVG document with a visible title, a description and colours for light and dark screens."""
        lines = wrap(printable(" ".join(self.sentences)), _LINE_CHARACTERS)
        top = _TITLE + _LINE * len(lines) + _GAP
        height = top + self.height + _GAP
        texts = [_text("0", 18, "title", self.title)]
        texts += [_text("0", _TITLE + 12 + _LINE * at, "lane", line) for at, line in enumerate(lines)]
        body = (
            f"<style>{stylesheet('.key-map')}{_FONTS}{STYLE}</style>"
            f'<rect class="background" x="-10" width="{WIDTH + 20}" height="{height}"/>{"".join(texts)}'
            f'<svg y="{top}" width="{WIDTH}" height="{self.height}" overflow="visible">{self.body}</svg>'
        )
        size = f'width="{WIDTH + 20}" height="{height}" viewBox="-10 0 {WIDTH + 20} {height}"'
        return self._svg(size, body)

    def _svg(self, size: str, body: str) -> str:
        description = _escape(" ".join(self.sentences))
        return (
            f'<svg class="key-map" role="img" aria-labelledby="key-map-title key-map-text" {size} '
            f'xmlns="http://www.w3.org/2000/svg"><title id="key-map-title">{_escape(self.title)}</title>'
            f'<desc id="key-map-text">{description}</desc>{_HATCH}{body}</svg>'
        )


def draw_query(space: KeySpace, plan: ReadPlan, *, limited: bool = False) -> Picture:
    """Draw what a plan reads of a crawl; ``limited`` says that a limit ended the read early."""
    patterns = plan.query.patterns
    pattern = f"{shorten(patterns[0], width=60)}{f' and {len(patterns) - 1:,} more' if patterns[1:] else ''}"
    canvas = _Canvas()
    canvas.heading(f"All files of {space.crawl}")
    canvas.axis(space.files, "file", requested=pattern)
    if space.groups:
        canvas.heading("Row groups of the files that are read")
    for axis in space.groups:
        canvas.axis(axis, "row group", name=f"{short_path(axis.name)} of {axis.lanes[0].name}")
    canvas.rest(space.read_files - len(space.groups), "more file")
    if space.pages:
        canvas.heading("Pages of the row groups that are read")
        for axis in space.pages:
            path, _, ordinal = axis.name.rpartition("#")
            canvas.axis(axis, "page", name=f"{short_path(path)}, row group {ordinal}")
        canvas.rest(space.read_groups - len(space.pages), "more row group")
    sentences = space.sentences(limited=limited)
    crawls = {each.crawl for each in plan.crawls if each.requests or each.files}
    others = len(crawls - {space.crawl})
    included = f", with {plural(others, 'other crawl')}" if others else ""
    sentences.append(f"Cost{included}: {plan.price}.")
    if plan.indexes:
        sentences.append("Some page indexes are not fetched yet, so that pages are not drawn.")
    return canvas.picture(f"{pattern} in {space.crawl}", sentences)


def draw_crawl(crawl: str, axis: Axis) -> Picture:
    canvas = _Canvas()
    canvas.axis(axis, "", count=_depth)
    return canvas.picture(crawl, ["The keys in its files and row groups."])


def short_path(path: str) -> str:
    """Return the part of an index file's name that differs within a crawl: ``part-00007``."""
    return "-".join(path.rpartition("/")[2].split("-")[:2]).removesuffix(".parquet")


def shorten(key: str, other: str = "", *, width: int = _KEY_CHARACTERS) -> str:
    """Shorten a key by an ellipsis, so that it differs from another one if possible; ``width`` is at least 8."""
    if len(key) <= width:
        return key
    alike = shared_prefix(key, other)
    if not other or key == other or alike < width - 4:
        return key[: width - 1] + "…"
    head, tail = key[: width // 3], key[max(alike - 2, 0) :]
    room = width - len(head) - 1
    return f"{head}…{tail}" if len(tail) <= room else f"{head}…{tail[: room - 1]}…"


class _Canvas:
    def __init__(self) -> None:
        self._y = 0
        self._spans: list[str] = []
        self._bars: list[str] = []
        self._lines: list[str] = []
        self._texts: list[str] = []
        self._styles: set[str] = set()

    def picture(self, title: str, sentences: Sequence[str]) -> Picture:
        legend = []
        for at, style in enumerate(style for style in _LEGEND if style in self._styles):
            text, swatch = _LEGEND[style]
            x, y = ("0", "50%")[at % 2], self._y + _LINE * (at // 2)
            legend.append(f'<svg class="legend" x="{x}" y="{y}">{swatch}{_text("28", 12, "lane", text)}</svg>')
        height = self._y + _LINE * -(-len(legend) // 2)
        body = "".join([*self._spans, *self._bars, *self._lines, *self._texts, *legend])
        return Picture(printable(title), tuple(sentences), height, body)

    def heading(self, text: str) -> None:
        self._y += _GAP if self._y else 0
        self._texts.append(_text("0", self._y + _HEADING - 9, "heading", text))
        self._y += _HEADING

    def axis(
        self, axis: Axis, noun: str, *, requested: str = "", name: str = "", count: Callable[[Lane], str] | None = None
    ) -> None:
        """Draw lanes, the requested keys with their pattern, and the first and last key.

        ``name`` replaces that of the only lane; ``count`` describes a lane, by default how many are read.
        """
        if requested and axis.marks:
            x, anchor = _label_place(axis.marks[0][0], axis.marks[-1][1])
            self._write(x, anchor, "requested", shorten(requested, width=2 * _KEY_CHARACTERS), _LINE)
        top = self._y + (_LINE if name else 0)
        for lane in axis.lanes:
            read = lane.count(State.READ, State.UNKNOWN)
            self._write("100%", "end", "lane", count(lane) if count else f"{read:,} of {lane.size:,} read")
            self._write("0", "start", "lane", name or lane.name, _LINE)
            self._lane(lane, noun or "row group")
        for start, end in merge_close(axis.marks, _MIN_WIDTH):
            self._mark(start, end, top)
        if axis.low or axis.high:
            self._write("0", "start", "key", shorten(axis.low, axis.high))
            self._write("100%", "end", "key", shorten(axis.high, axis.low), _LINE)
        self._y += _GAP

    def rest(self, count: int, noun: str) -> None:
        if count > 0:
            self._write("0", "start", "note", f"and {plural(count, noun)}, not drawn", _LINE)
            self._y += _GAP

    def _write(self, x: str, anchor: str, style: str, text: str, height: int = 0) -> None:
        self._texts.append(_text(x, self._y + _LINE - 4, style, text, anchor))
        self._y += height

    def _mark(self, start: float, end: float, top: int) -> None:
        self._styles.add("mark")
        places = [start]
        if end - start > _MIN_WIDTH:
            places.append(end)
            size = f'width="{_percent(end - start)}" height="{self._y - top}"'
            self._spans.append(f'<rect class="span" x="{_percent(start)}" y="{top}" {size}/>')
        for place in map(_percent, places):
            line = f'x1="{place}" x2="{place}" y1="{top}" y2="{self._y}"'
            self._lines += [f'<line class="halo" {line}/>', f'<line class="mark" {line}/>']

    def _lane(self, lane: Lane, noun: str) -> None:
        bounded = [bar for bar in lane.bars if bar.bounded]
        rows = lane.depth
        height = next(height for most, height in _ROW_HEIGHTS.items() if rows <= most)
        dense = " dense" if len(bounded) > _DENSE or rows > 1 else ""
        skipped = [bar for bar in bounded if bar.state is State.SKIPPED]
        read = [bar for bar in bounded if bar.state is not State.SKIPPED]
        if skipped:
            self._band(skipped, rows, height, "skipped", dense)
        if len(read) > _DENSE:
            self._band(read, rows, height, "read", dense)
        else:
            for bar in read:
                self._box(bar, height)
        self._y += rows * height
        if lane.unbounded:
            self._styles.add("unbounded")
            self._bars.append(
                f'<rect class="unbounded" width="100%" y="{self._y + 1}" height="8"><title>may hold any key</title>'
                "</rect>"
            )
            self._y += 10
            self._write("0", "start", "note", f"{plural(lane.unbounded, noun)} without bounds may hold any key", _LINE)
        self._y += 4

    def _band(self, bars: Sequence[Bar], rows: int, height: int, style: str, dense: str) -> None:
        self._styles.add(style)
        inset = height // 3 if style == "skipped" else 0
        tall = height - 2 * inset - (0 if inset else 1)
        steps = []
        for bar in bars:
            start, end = (round(place * _BAND_UNITS) for place in _visible(bar))
            steps.append(f"M{start} {bar.row * height + inset}h{end - start}v{tall}h{start - end}z")
        self._bars.append(
            f'<svg y="{self._y}" width="100%" height="{rows * height}" viewBox="0 0 {_BAND_UNITS} {rows * height}" '
            f'preserveAspectRatio="none"><path class="{style}{dense}" d="{"".join(steps)}"/></svg>'
        )

    def _box(self, bar: Bar, height: int) -> None:
        style = "read" if bar.state is State.READ else "unknown"
        self._styles.add(style)
        name = short_path(bar.label) if bar.label.endswith(".parquet") else bar.label
        start, end = _visible(bar)
        self._bars.append(
            f'<rect class="{style}" x="{_percent(start)}" width="{_percent(end - start)}" '
            f'y="{self._y + bar.row * height}" height="{height - 1}">'
            f"<title>{_escape(f'{name}: {bar.state.value}')}</title></rect>"
        )


def _visible(bar: Bar) -> tuple[float, float]:
    if bar.end - bar.start >= _MIN_WIDTH:
        return bar.start, bar.end
    start = min(bar.start, 1 - _MIN_WIDTH)
    return start, start + _MIN_WIDTH


def _depth(lane: Lane) -> str:
    most = f"{lane.depth:,} or more" if lane.depth == MAX_ROWS else f"up to {lane.depth:,}"
    unbounded = f"; {lane.unbounded:,} without bounds" if lane.unbounded else ""
    return f"{lane.size:,}" + (f", {most} with the same key" if lane.depth > 1 else "") + unbounded


def _label_place(start: float, end: float) -> tuple[str, str]:
    middle = (start + end) / 2
    if middle < 0.3:  # noqa: PLR2004 - a third at each side
        return _percent(start), "start"
    return (_percent(end), "end") if middle > 0.7 else (_percent(middle), "middle")  # noqa: PLR2004


def _text(x: str, y: int, style: str, text: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{_escape(text)}</text>'


def _percent(place: float) -> str:
    return f"{100 * place:.2f}%"


def _escape(text: str) -> str:
    return escape(printable(text))
