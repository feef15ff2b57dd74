"""Compare URLs of records with those of the index, whose writers escape them differently."""

from contextlib import suppress
from urllib.parse import unquote_to_bytes

from catalogue.surt import BLANKS


def is_same_url(url: str, other: str) -> bool:
    """Return whether two URLs differ at most in percent-encoding and in blanks around them, which headers lose.

    Characters beyond ASCII may be escaped as UTF-8, or as Latin-1, which ``head`` reads where bytes are not UTF-8.
    """
    return url == other or not _unescaped(url).isdisjoint(_unescaped(other))


def _unescaped(url: str) -> set[bytes]:
    """Return the bytes that a URL stands for, in each charset that has its characters."""
    url = url.strip(BLANKS)
    forms = {unquote_to_bytes(url.encode(errors="surrogatepass"))}
    with suppress(UnicodeEncodeError):
        forms.add(unquote_to_bytes(url.encode("latin-1")))
    return forms
