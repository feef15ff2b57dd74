"""Keys against those that releases of iipc/webarchive-commons make.

No URL of the data is known to differ. Outside of it these are: hosts with letters that had no lower case in Unicode 3.2
and have one now (Georgian and Cherokee capitals), hosts that IDNA refuses and that end in a capital sigma, hosts that
end in a dot and an escaped line break, and ports in other digits than ASCII's.
"""

import csv
import gzip
import string
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from catalogue.errors import QueryError
from catalogue.surt import url_surtkey
from catalogue.surt.equality import normal_url, same_url
from catalogue.surt.interval import covers
from catalogue.surt.key import keys_of, plain_key, split, url_surtkeys
from catalogue.surt.pattern import Match, exact_keys, parse_pattern

DATA = Path(__file__).parents[1] / "data"
SESSION = "9682993c8daa2c5497996114facdc805"


def read_table(name: str) -> list[list[str]]:
    raw = (DATA / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    return list(csv.reader(text.splitlines()[1:], delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize(("url", "key", "_source"), read_table("surt_pairs.tsv"))
def test_converts_urls(url: str, key: str, _source: str) -> None:
    assert url_surtkey(url) == key


def test_converts_thousands_of_urls() -> None:
    pairs = read_table("surt_pairs_many.tsv.gz")
    assert len(pairs) > 5_000
    assert [(url, key, url_surtkey(url)) for url, key in pairs if url_surtkey(url) != key] == []
    assert sum(plain_key(url) is not None for url, _ in pairs) > len(pairs) * 0.9


def test_converts_by_the_rules_of_all_releases() -> None:
    """Keys of releases 2.0.1, 1.1.9 and 1.1.5; empty where a release fails or, before 2.0.1, rejects the host."""
    rows = read_table("surt_releases.tsv.gz")
    counts = [0, 0, 0, 0]
    for url, *expected in rows:
        try:
            found = url_surtkeys(url)
            assert found[0] == url_surtkey(url)
        except QueryError:
            found = ()
        counts[len(found)] += 1
        assert found[:1] == tuple(filter(None, expected[:1])), url
        assert set(filter(None, expected)) <= set(found), url
        if all(expected):
            assert found[: len({*expected})] == tuple(dict.fromkeys(expected)), url
    assert min(counts) > 0


@pytest.mark.parametrize(
    ("url", "key"),
    [
        *(("http://0377.1.1.1/", "1,1,1,255)/"), ("http://💩.la/", "la,%f0%9f%92%a9)/")),
        *(("http://ex_ämple.com/", "com,xn--ex_mple-7wa)/"), (f"http://{'ä' * 64}.com/", f"com,{'%c3%a4' * 64})/")),
        *(("http://ä..com/", "com,%c3%a4)/"), ("http://中国。中国/", "xn--fiqs8s,xn--fiqs8s)/")),
        ("http://example.com/%C3%A4%E9", "com,example)/%c3%a4%e9"),
        ("http://example.com/%2525252541", "com,example)/a"),
        ("http://example.com/../a/./b//../c/", "com,example)/../a/b/c"),
        (f"http://example.com/a?a=1&sid={SESSION}", "com,example)/a?&a=1"),
        (f"http://example.com/a?sid={SESSION}0", f"com,example)/a?sid={SESSION}0"),
        (f"http://example.com/a?sjsessionid={SESSION}&id={SESSION}", f"com,example)/a?sid={SESSION}"),
        ("http://example.com/(4hqa0555fwsecu455xqckv45)/x.aspx", "com,example)/x.aspx"),
        (" HTTP://User:pw@EXAMPLE.com.:80/A/?#F ", "com,example)/a"),
        *(("\texam\nple.com", "com,example)/"), ("//example.com/x", "com,example)/x")),
        *(("http:////example.com/x", "com,example)/x"), ("gopher://example.com/x", "gopher)/example.com/x")),
        *(("dns:www.example.com", "com,example,www)"), ("warcinfo:/x", "warcinfo:/x")),
    ],
)
def test_follows_each_rule(url: str, key: str) -> None:
    assert url_surtkey(url) == key


@pytest.mark.parametrize(
    "url",
    [
        *("", " ", "http://", "https:///", "http://user@", "http://:80/", "?x", "#x", "http://./", "example.com:x/"),
        *("http://example.com:2147483648/", "http://user@[::1]:80/", "http://[::1", "http://example.com/\udce9"),
    ],
)
def test_rejects_urls_without_key(url: str) -> None:
    with pytest.raises(QueryError, match="a URL looks like https://example"):
        url_surtkey(url)


def test_repeated_escapes_end() -> None:
    assert url_surtkey(f"http://example.com/%{'25' * 20_000}41") == "com,example)/a"
    assert url_surtkey(f"http://example.com/%2{'%3' * 5_000}541") == "com,example)/a"


@pytest.mark.parametrize("pattern", ["www.www2.example.com/a", "WWW.www2.example.com/*", "www3.www2.example.com"])
def test_finds_keys_of_the_surt_library_of_python(pattern: str) -> None:
    """Version 0.3.1 drops only the first ``www.``; some of the oldest crawls may have its keys."""
    match = None if "/" in pattern else Match.HOST
    intervals = parse_pattern(pattern, match).intervals
    assert all(covers(intervals, f"{host})/a".encode()) for host in ("com,example", "com,example,www2"))
    assert not covers(parse_pattern("www.example.com/*").intervals, b"com,example,www2)/a")


LABELS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8).filter(
    lambda label: not label.startswith("www")
)
HOSTS = st.builds(
    lambda labels, tld: ".".join([*labels, tld]), st.lists(LABELS, max_size=3), st.sampled_from(["com", "is"])
)
PATH_TEXT = st.text(st.sampled_from("ab/.%2fE9~;,A(:@=ä中\ud7ff"), max_size=12)
QUERY_TEXT = st.text(st.sampled_from("ab=&%2fE9~A;?/ä"), max_size=12)


@given(st.one_of(st.text(), st.text().map("http://".__add__), st.text().map("https://example.com/".__add__)))
@example("http://[")
@example("%")
@example("http://" + "9" * 5_000)
@example("http://" + "9" * 5_000 + ".1.1.1")
@example("http://a:" + "1" * 5_000)
def test_any_text_has_a_key_or_a_query_error(url: str) -> None:
    try:
        found = url_surtkeys(url)
    except QueryError:
        return
    assert found[0] == url_surtkey(url)
    assert len(set(found)) == len(found) <= 4


PIECES = [
    *("http://", "https://", "HTTP://", "www.", "www2.", "WWW.", "example.com", "Exa-mple.org", "a_b.co.uk", "www.com"),
    *("1.2.com", "com", "10.0.0.1", ".", "..", "/", "//", "/a", "/B/", "/.", "/..", "/x.aspx", "?", "&", "=", "a=1"),
    *(f"/(S({SESSION[:24]}))/x.aspx", "b=2", "id=3", "sid=", f"jsessionid={SESSION}", f"PHPSESSID={SESSION}", "#f"),
    *("cfid=1&cftoken=2", "aspsessionidabcdefgh=abcdefghabcdefghabcdefgh", "%41", "%e9", "%", "é", ":80", " "),
    *"*'\"|\\^~!$(),;:@{}[]-_`<>",
]


@given(st.sampled_from(["", "http://", "https://www."]), st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
@example("https://", "example.com/A/b?id=2&a=B&a")
@example("", "www.com")
def test_plain_urls_have_the_same_key(scheme: str, rest: str) -> None:
    """The short way, where there is one, has the result of the complete rules, in all eras."""
    url = scheme + rest
    if (plain := plain_key(url)) is not None:
        assert keys_of(split(url)) == (plain,)


@pytest.mark.parametrize(
    "url",
    ["example.com", " https://www.example.com/A?b=1 ", "http://example.com/%E9", "ex.com:81/é", "WWW2.www.is/%E9"],
)
def test_keys_of_an_exact_url(url: str) -> None:
    keys = exact_keys(url)
    assert keys == url_surtkeys(url)
    assert sorted(key.encode() for key in keys) == [each.start for each in parse_pattern(url, Match.EXACT).intervals]


@pytest.mark.parametrize(
    "text", ["", "no host", "/path", "mailto:a@example.com", "http://exa mple.com/", "com,example"]
)
def test_exact_keys_of_no_url(text: str) -> None:
    with pytest.raises(QueryError):
        exact_keys(text)


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
