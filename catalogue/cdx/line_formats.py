"""Write lines of the CDX index as Common Crawl's index server does."""

import enum
import json
import re
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii

KEY, TIME = "urlkey", "timestamp"
_RENAMED = {"charset": "encoding"}
"""The server renames this field, and writes it last."""
_CHARSET = re.compile(r'"charset": ("(?:[^"\\]|\\.)*")(?:, )?')
"""JSON as ``lines_of`` writes it; in a value its quotation marks would be escaped."""


class Output(enum.Enum):
    """A format of lines; the value is its content type."""

    CDXJ = "text/x-cdxj"
    """Key, time and a JSON object."""
    JSON = "text/x-ndjson"
    TEXT = "text/plain"
    """Values separated by blanks; ``-`` for missing ones."""


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line of ``lines_of``, as the server names and orders them."""
    key, time, text = line.split(" ", 2)
    fields = {KEY: key, TIME: time, **json.loads(text)}
    for name, renamed in _RENAMED.items():
        if name in fields:
            fields[renamed] = fields.pop(name)
    return fields


def time_of(line: str) -> str:
    return line.split(" ", 2)[1]


def write_lines(lines: Iterable[str], output: Output, names: Sequence[str] | None = None) -> bytes:
    """Write lines of ``lines_of`` with the fields ``names``, or with all.

    CDXJ always has key and time. Unknown names are ``-`` in text and left out otherwise. ``charset`` is another name of
    ``encoding``.
    """
    write = _WRITERS[output] if names is None else _selecting(output, names)
    return "".join([f"{write(line)}\n" for line in lines]).encode()


def _write_cdxj(line: str) -> str:
    key, time, text = line.split(" ", 2)
    return f"{key} {time} {_served(text)}"


def _write_json(line: str) -> str:
    key, time, text = line.split(" ", 2)
    start = f'{{"{KEY}": {encode_basestring_ascii(key)}, "{TIME}": {encode_basestring_ascii(time)}'
    rest = _served(text)
    return f"{start}}}" if rest == "{}" else f"{start}, {rest[1:]}"


def _write_text(line: str) -> str:
    return " ".join(fields_of(line).values())


_WRITERS: dict[Output, Callable[[str], str]] = {
    Output.CDXJ: _write_cdxj,
    Output.JSON: _write_json,
    Output.TEXT: _write_text,
}


def _served(text: str) -> str:
    """Rename the charset in a JSON object, and move it to the end, without parsing."""
    found = _CHARSET.search(text)
    if not found:
        return text
    others = (text[1 : found.start()] + text[found.end() : -1]).removesuffix(", ")
    return f'{{{others}{", " if others else ""}"{_RENAMED["charset"]}": {found[1]}}}'


def _selecting(output: Output, names: Sequence[str]) -> Callable[[str], str]:
    selected = {name: _RENAMED.get(name, name) for name in names}

    def write(line: str) -> str:
        fields = fields_of(line)
        if output is Output.TEXT:
            return " ".join([fields.get(_RENAMED.get(name, name), "-") for name in names])
        some = {name: fields[of] for name, of in selected.items() if of in fields}
        if output is Output.JSON:
            return json.dumps(some)
        rest = {name: value for name, value in some.items() if name not in {KEY, TIME}}
        return f"{fields[KEY]} {fields[TIME]} {json.dumps(rest)}"

    return write
