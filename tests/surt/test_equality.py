"""Which URLs are spellings of one URL, and odd URLs of the index as patterns."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from catalogue.errors import QueryError
from catalogue.surt import Match, covers, exact_keys, normal_url, parse_pattern, same_url, url_surtkey, url_surtkeys
from tests.surt.test_surt import HOSTS, PATH_TEXT, QUERY_TEXT


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("http://example.com/", "https://example.com"),
        ("example.com", "HTTPS://EXAMPLE.com.:443/#top"),
        ("http://example.com:80/a", "http://user:pw@example.com/a"),
        ("http://example.com:8080/a", "https://example.com:8080/a"),
        ("http://example.com/%7euser/%c3%a9", "http://example.com/~user/é"),
        ("http://example.com/?q=é b", "http://example.com/?q=%C3%A9%20b"),
        ("http://example.com/a|b", "http://example.com/a%7cb"),
        ("http://example.com/100%", "http://example.com/100%25"),
        ("http://example.com/a_%28b%29", "http://example.com/a_(b)"),
        ("http://example.com/?a[]=1", "http://example.com/?a%5B%5D=1"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/a/b/..", "http://example.com/a/"),
        ("http://example.com/a/%2e%2E/c", "http://example.com/c"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("https:////example.com/a", "http://example.com/a"),
        ("HTTPS:////example.com/a", "http://example.com/a"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("dns:example.com", "dns:example.com"),
        ("http://example.com:x/", "http://example.com:x/"),
    ],
)
def test_spellings_of_one_url(url: str, other: str) -> None:
    assert same_url(url, other)
    assert same_url(other, url)


@pytest.mark.parametrize(
    ("url", "other"),
    [
        *(("http://www.example.com/", "http://example.com/"), ("http://www2.example.com/", "http://www.example.com/")),
        *(("http://www3288.com/", "http://www1355544.com/"), ("http://example.com/AbC", "http://example.com/aBc")),
        *(("http://example.com/?q=A", "http://example.com/?q=a"), ("http://example.com/a", "http://example.com/a/")),
        *(("http://example.com/a/", "http://example.com//a/"), ("http://example.com/a%2Fb", "http://example.com/a/b")),
        ("http://example.com/?a=1&b=2", "http://example.com/?b=2&a=1"),
        ("http://example.com/?a=1%26b", "http://example.com/?a=1&b"),
        ("http://example.com/?", "http://example.com/"),
        ("http://example.com/?sid=9682993c8daa2c5497996114facdc805", "http://example.com/"),
        *(("http://example.com:8080/", "http://example.com/"), ("ftp://example.com/", "http://example.com/")),
        *(("http://example.com:x/", "http://example.com/"), ("", "http://example.com/")),
    ],
)
def test_other_urls(url: str, other: str) -> None:
    assert not same_url(url, other)
    assert not same_url(other, url)


@given(HOSTS, PATH_TEXT, QUERY_TEXT)
def test_normal_url_is_a_spelling_with_the_same_key(host: str, path: str, query: str) -> None:
    url = f"http://www2.{host}/{path}?{query}"
    normal = normal_url(url)
    assert normal_url(normal) == normal
    assert normal == normal_url(f"HTTPS://u@WWW2.{host.upper()}.:443/{path}?{query}#f")
    assert normal.isascii()


@given(
    HOSTS, st.text(st.sampled_from("abCD09-._~!$&'()*+,;=:@/"), max_size=9), st.none() | st.sampled_from(["", "q=1"])
)
def test_plain_urls_need_no_parser(host: str, path: str, query: str | None) -> None:
    assume("/." not in f"/{path}")
    rest = f"/{path}{'' if query is None else f'?{query}'}"
    assert normal_url(f"http://{host}{rest}") == normal_url(f"http://u@{host}{rest}") == f"{host}{rest}"


SLASHES = st.sampled_from(["//", "///", "////", "/////////"])
ODD_TEXT = st.text(st.sampled_from('ab \t\n\r\x00\x1f\x7f\x85\xa0\u2028\u3000é%2f\\|"<>^`{}[]#?&=/'), max_size=12)


@given(st.sampled_from(["http:", "https:"]), SLASHES, HOSTS, PATH_TEXT | ODD_TEXT, st.sampled_from([None, Match.EXACT]))
def test_odd_urls_of_the_index_match_their_keys(
    scheme: str, slashes: str, host: str, path: str, match: Match | None
) -> None:
    url = f"{scheme}{slashes}{host}.example/{path}"
    assume("*" not in path)
    pattern = parse_pattern(url, match)
    assert covers(pattern.intervals, url_surtkey(url).encode())
    assert exact_keys(url) == url_surtkeys(url)
    assert same_url(url, url.replace(slashes, "//", 1))


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        *(("https:////example.com/dir/*", Match.PREFIX), ("https:///*.example.com", Match.DOMAIN)),
        *(("HTTP:////example.com/dir/", Match.EXACT), ("https:////sites.example.com/a b", Match.EXACT)),
    ],
)
def test_surplus_slashes_in_all_forms(pattern: str, match: Match) -> None:
    parsed = parse_pattern(pattern)
    plain = f"https://{pattern.split(':', 1)[1].lstrip('/')}"
    assert (parsed.match, parsed.intervals) == (match, parse_pattern(plain).intervals)
    assert parsed.url == (pattern if match is Match.EXACT else None)


@pytest.mark.parametrize(
    "text", ["example.com/a b", "https://exa mple.com/", "https://a.is/ https://b.is/", "a.is/\nb.is/"]
)
def test_rejects_spaces_outside_of_paths(text: str) -> None:
    with pytest.raises(QueryError, match="contains a space; write %20"):
        parse_pattern(text)
