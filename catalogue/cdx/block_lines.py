"""The lines of a block as ``lines_of`` writes them, without converting lines that have this form already."""

import re
from functools import lru_cache

from catalogue.cdx.blocks import FoundLines
from catalogue.cdx.lines import lines_of
from catalogue.cdx.rows import captures_of

_TEXT = r"[ !#-\[\]-~]*"
"""Characters that JSON does not escape."""
_KNOWN = rf'(?!-?"){_TEXT}'
_NUMBER = r"(?:0|[1-9]\d{0,14})"
_DATE = r"(?:(?:0[1-9]|1[0-2])(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])(?:29|30)|(?:0[13578]|1[02])31)"
"""Month and day, except leap days."""
_TIME = rf"[12]\d{{3}}{_DATE}(?:[01]\d|2[0-3])(?:[0-5]\d){{2}}"


def written_lines(crawl: str, found: FoundLines) -> list[str]:
    """Return the lines of a block as ``lines_of`` writes its rows.

    Raises:
        BadCdx: if a line is invalid.
    """
    is_plain = _plain(crawl).fullmatch
    lines = found.data.split(b"\n")[:-1]
    plain = [is_plain(line) is not None for line in lines]
    if all(plain):
        return [line.decode("ascii") for line in lines]
    others = [
        FoundLines(found.path, found.offset, found.line + number, line + b"\n")
        for number, (line, known) in enumerate(zip(lines, plain, strict=True))
        if not known
    ]
    converted = iter(lines_of(captures_of(crawl, others)))
    return [line.decode("ascii") if known else next(converted) for line, known in zip(lines, plain, strict=True)]


@lru_cache(maxsize=256)
def _plain(crawl: str) -> re.Pattern[bytes]:
    """Match valid lines that a conversion to a row and back does not change."""
    archive = rf"(?:common-crawl/)?crawl-data/{re.escape(crawl)}/segments/[!#-.0-\[\]-~]+/"
    pattern = (
        rf'[!-~]+ {_TIME} {{"url": "{_TEXT}", "mime": "{_KNOWN}"{_optional("mime-detected")}'
        rf'(?:, "status": "[1-9]\d\d")?{_optional("digest")}, "length": "{_NUMBER}", "offset": "{_NUMBER}", '
        rf'"filename": "{archive}(?:crawldiagnostics|robotstxt|warc)/{_TEXT}"'
        rf"{_optional('charset', 'languages', 'truncated', 'redirect')}}}"
    )
    return re.compile(pattern.encode("ascii"))


def _optional(*names: str) -> str:
    return "".join(rf'(?:, "{name}": "{_KNOWN}")?' for name in names)
