"""URL patterns in SQL: DuckDB macros for URLs whose keys SQL can make.

They accept hosts, domains and plain paths; for anything else (other alphabets, escapes, queries, ``..``, session ids,
unusual addresses) a macro raises an error. Each is one expression that calls no other macro, and constant for a
constant pattern, so that DuckDB prunes files by it.
"""

from dataclasses import dataclass

_LABELS = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_SCHEME = r"(?:((?i)https?)://)?"
_PATH = r'/[!"$&-)+->@-~]*'
_URL = rf"^{_SCHEME}({_LABELS})(?::([1-9][0-9]{{0,4}}))?({_PATH})?$"
_START = rf"^{_SCHEME}({_LABELS})(?::([1-9][0-9]{{0,4}}))?({_PATH})\*$"
_DOMAIN = rf"^{_SCHEME}\*\.({_LABELS})(?:/\*?)?$"

_BELOW_256 = "25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]"
_IPV4 = rf"^(?:25[0-5]|2[0-4][0-9]|1[0-9]{{2}}|[1-9][0-9]?)(?:\.(?:{_BELOW_256})){{3}}$"
"""An address as a key spells it; other spellings need Python."""
_RESOLVED = r"//|/\.{1,2}(?:/|$)"
_SESSION = r"/\(.*\)/.*\.aspx"
_OPAQUE = "^(?:dns|filedesc|warcinfo):"
"""Other records of a web archive, whose keys are not made of a host and a port."""


@dataclass(frozen=True, slots=True)
class Macro:
    """A scalar macro of an SQL expression."""

    name: str
    parameters: tuple[str, ...]
    body: str

    @property
    def statement(self) -> str:
        return f"CREATE OR REPLACE MACRO {self.name}({', '.join(self.parameters)}) AS {self.body}"


def _is(form: str, text: str) -> str:
    host, path = _part(form, 2, text), "''" if form == _DOMAIN else _part(form, 4, text)
    odd_address = f"regexp_matches({host}, '^[0-9.]+$') AND NOT regexp_matches({host}, '{_IPV4}')"
    odd_path = f"regexp_matches({path}, '{_RESOLVED}') OR regexp_matches(lower({path}), '{_SESSION}')"
    return f"(regexp_matches({text}, '{form}') AND NOT ({odd_address}) AND NOT ({odd_path}))"


def _part(form: str, number: int, text: str) -> str:
    return f"regexp_extract({text}, '{form}', {number})"


def _reversed(host: str) -> str:
    return f"array_to_string(list_reverse(string_split({host}, '.')), ',')"


def _bare(form: str, text: str) -> str:
    return rf"regexp_replace(lower({_part(form, 2, text)}), '^(?:www[0-9]*\.)+', '')"


def _host_key(form: str, text: str) -> str:
    scheme, port = f"lower({_part(form, 1, text)})", _part(form, 3, text)
    own = f"{port} = '' OR ({scheme} IN ('', 'http') AND {port} = '80') OR ({scheme} = 'https' AND {port} = '443')"
    return f"({_reversed(_bare(form, text))} || CASE WHEN {own} THEN '' ELSE ':' || {port} END || ')')"


def _exact(text: str) -> str:
    path = f"regexp_replace(lower({_part(_URL, 4, text)}), '/$', '')"
    return f"({_host_key(_URL, text)} || CASE WHEN {path} = '' THEN '/' ELSE {path} END)"


def _refused(text: str, instead: str) -> str:
    why = f" has no key that SQL can make, only plain hosts and paths have; {instead}"
    return f"error(coalesce({text}, 'NULL') || '{why}')"


_PATTERN, _TYPED = "trim(pattern, ' ')", "trim(url, ' ')"
"""Plain ``trim`` also removes other blanks, which keys keep."""
_ASK = "ask instead: catalogue query PATTERN, or compare with a key of catalogue.url_surtkey"
_PREFIX = f"({_host_key(_START, _PATTERN)} || lower({_part(_START, 4, _PATTERN)}))"
_BEHIND = f"(left({_PREFIX}, -1) || chr(ascii(right({_PREFIX}, 1)) + 1))"
"""The smallest text above all that start with the prefix, which is ASCII."""
_SEVERAL_KEYS = r"^(?i)(?:https?://)?(?:\*\.)?(?:www[0-9]*\.){2}"
"""Starts of patterns whose host has different keys in different crawls."""
_HOST = _reversed(_bare(_DOMAIN, _PATTERN))
_WITH_WWW = f"lower({_part(_DOMAIN, 2, _PATTERN)})"
_BELOW = f"""CASE WHEN contains({_bare(_DOMAIN, _PATTERN)}, '.') THEN {_HOST} ELSE {_reversed(_WITH_WWW)} END"""
"""This does not match all of ``com`` for ``*.www.com``."""


def _cases(everything: str, domain: str, prefix: str, exact: str) -> str:
    return (
        f"CASE WHEN regexp_matches({_PATTERN}, '{_SEVERAL_KEYS}') THEN {_refused('pattern', _ASK)} "
        f"WHEN {_PATTERN} = '*' THEN {everything} WHEN {_is(_DOMAIN, _PATTERN)} THEN {domain} "
        f"WHEN {_is(_START, _PATTERN)} THEN {prefix} WHEN {_is(_URL, _PATTERN)} THEN {exact} "
        f"ELSE {_refused('pattern', _ASK)} END"
    )


MACROS = (
    Macro(
        "surt_key",
        ("url",),
        f"CASE WHEN {_is(_URL, _TYPED)} AND NOT regexp_matches(url, '{_OPAQUE}') THEN {_exact(_TYPED)} "
        f"ELSE {_refused('url', 'take that of catalogue.url_surtkey in Python')} END",
    ),
    Macro(
        "surt_match",
        ("surtkey", "pattern"),
        _cases(
            "surtkey IS NOT NULL",
            # DuckDB prunes files by the first two conditions, but not by three intervals.
            f"surtkey >= {_HOST} || ')' AND surtkey < {_HOST} || ';' AND (starts_with(surtkey, {_HOST} || ')') "
            f"OR starts_with(surtkey, {_HOST} || ':') OR starts_with(surtkey, {_BELOW} || ','))",
            f"surtkey >= {_PREFIX} AND surtkey < {_BEHIND}",
            f"surtkey = {_exact(_PATTERN)}",
        ),
    ),
    Macro(
        "surt_overlaps",
        ("least", "greatest", "pattern"),
        "coalesce("
        + _cases(
            "true",
            f"(greatest >= {_HOST} || ')' AND least < {_HOST} || '*') "
            f"OR (greatest >= {_HOST} || ':' AND least < {_HOST} || ';') "
            f"OR (greatest >= {_BELOW} || ',' AND least < {_BELOW} || '-')",
            f"greatest >= {_PREFIX} AND least < {_BEHIND}",
            f"{_exact(_PATTERN)} BETWEEN least AND greatest",
        )
        + ", true)",
    ),
)
"""``surt_key(url)``; ``surt_match(url_surtkey, pattern)``; and ``surt_overlaps(min_url_surtkey, max_url_surtkey,
pattern)``, whether matching keys may lie between bounds (true for unknown bounds).
"""
