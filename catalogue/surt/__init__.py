"""URLs to ``url_surtkey``, and patterns to intervals of keys."""

from catalogue.errors import QueryError
from catalogue.surt.key import newest_key


def url_surtkey(url: str) -> str:
    """Return the key under which the index stores a URL; without a scheme, ``http`` is assumed.

    Raises:
        QueryError: if it is not text, has no host, or has a port that is not a number.
    """
    if not isinstance(url, str):  # checked outside of compiled modules, which raise TypeError
        raise QueryError(f"invalid URL of type {type(url).__name__}; use one text, such as https://example.com/page")
    return newest_key(url)
