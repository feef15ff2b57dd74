"""Find the charset in the header ``Content-Type``: https://fetch.spec.whatwg.org/#concept-header-extract-mime-type."""

import re
from collections.abc import Iterator

from catalogue.records.charsets import charset_of

_QUOTED = r'"(?:[^"\\]|\\.)*"?'
_VALUE, _PARAMETER = (re.compile(rf'(?:[^{end}"]|{_QUOTED})+', re.DOTALL) for end in ",;")
_TYPE = re.compile(r"[^\s/]+/[^\s/]+")
_ANY = "*/*"
_SIMILAR = re.compile(r"(?:^|[;,\s])charset\s*=[\s\"']*([^\"';,\s]+)", re.IGNORECASE)


def declared_charset(content_type: str) -> str | None:
    """Return the charset that browsers read: the first parameter of the last type, or of an equal type before it.

    ``content_type`` has all values of the header, separated by commas.
    """
    label, last = "", ""
    for value in _VALUE.findall(content_type):
        kind, _, parameters = value.partition(";")
        kind = kind.strip().lower()
        if not _TYPE.fullmatch(kind) or kind == _ANY:
            continue
        label, last = next(_labels(parameters), label if kind == last else ""), kind
    return charset_of(label)


def similar_charset(content_type: str) -> str | None:
    """Return the charset after ``charset=`` anywhere, where browsers read none."""
    return next(filter(None, map(charset_of, _SIMILAR.findall(content_type))), None)


def _labels(parameters: str) -> Iterator[str]:
    for parameter in _PARAMETER.findall(parameters):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset" and value:
            yield value.strip("\"' \t")
