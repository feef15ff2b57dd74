"""The public function for keys; functions of compiled modules have no docstrings."""

from catalogue.surt.key import newest_key


def url_surtkey(url: str) -> str:
    """Return the key under which the index stores a URL; without a scheme, ``http`` is assumed.

    Raises:
        QueryError: if it has no host or an invalid port.
    """
    return newest_key(url)
