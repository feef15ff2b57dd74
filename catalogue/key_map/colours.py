"""Colours of web pages and key maps on light and on dark backgrounds."""

LIGHT = {
    "paper": "#fbfaf7",
    "sheet": "#ffffff",
    "ink": "#1d1c1a",
    "soft": "#5b5750",
    "rule": "#dcd7cc",
    "field": "#8b867b",
    "link": "#0a5a78",
    "read": "#c04a12",
    "left": "#b9b3a6",
    "mark": "#0a5a78",
    "bad": "#a3261c",
    "warn": "#7a5200",
    "warn-sheet": "#fdf4dd",
    "bad-sheet": "#fdeeeb",
}
DARK = {
    "paper": "#161513",
    "sheet": "#1f1d1b",
    "ink": "#ece8df",
    "soft": "#aaa498",
    "rule": "#37342f",
    "field": "#7d776c",
    "link": "#86c8e0",
    "read": "#ff9a5c",
    "left": "#5d5850",
    "mark": "#86c8e0",
    "bad": "#ff9c8f",
    "warn": "#f0c463",
    "warn-sheet": "#2a2416",
    "bad-sheet": "#2f1b18",
}


def stylesheet(selector: str = ":root") -> str:
    """Return the colours as CSS variables that follow the reader's colour scheme."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"
