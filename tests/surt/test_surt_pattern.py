"""Intervals of keys, and patterns with keys that they match and keys that they do not match."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import QueryError
from catalogue.surt import url_surtkey
from catalogue.surt.interval import (
    EVERYTHING,
    KeyInterval,
    covers,
    exact_interval,
    merge,
    prefix_interval,
    text_after,
    text_from,
)
from catalogue.surt.pattern import Match, Pattern, parse_pattern
from tests.surt.test_surt import HOSTS, LABELS, PATH_TEXT, SESSION

BYTES_NEAR_TEXT = st.one_of(
    st.binary(max_size=6),
    st.builds(
        lambda text, more: text.encode() + more,
        st.text(max_size=4),
        st.sampled_from([b"", b"\xff", b"\xed\xa0", b"\xc3"]),
    ),
    st.sampled_from(["\ud7ff".encode() + b"\xff", "a\U0010ffff".encode() + b"\xff", "\U0010ffff".encode() + b"\xff"]),
)
SITE = [b"com,example)", b"com,example,", b"com,example:"]
PORTS = st.sampled_from(["", ":80", ":8080"])


def keys(pattern: Pattern, *urls: str) -> list[bool]:
    return [covers(pattern.intervals, url_surtkey(url).encode()) for url in urls]


@given(BYTES_NEAR_TEXT, st.one_of(st.text(max_size=5), BYTES_NEAR_TEXT.map(lambda key: key.decode(errors="ignore"))))
def test_text_bounds_include_every_key(end: bytes, key: str) -> None:
    assert text_from(end).encode() <= end
    after = text_after(end)
    if after is not None:
        assert end <= after.encode()
        assert key.encode() >= end or key.encode() < after.encode()


def test_text_bounds() -> None:
    assert (text_from(b"com,a-"), text_after(b"com,a-")) == ("com,a-", "com,a-")
    assert (text_from(b"com\xff"), text_after(b"com\xff")) == ("com", "con")
    assert text_after("\ud7ff".encode() + b"\xff") == "\ue000"
    assert text_after("a\U0010ffff".encode() + b"\xff") == "b"
    assert text_after(b"\xff") is None


def test_keys_are_ordered_by_bytes() -> None:
    urls = ["http://example.com/", "http://www5.a.example.com/", "http://example-shop.com/", "http://example0.com/"]
    urls += ["http://example.com:8080/", "http://examples.com/"]
    found = [url_surtkey(url).encode() for url in urls]
    assert found == sorted(found)
    assert found[2:4] == [b"com,example-shop)/", b"com,example0)/"]


@given(st.binary(max_size=3), st.binary(max_size=4))
def test_intervals_contain_one_key_or_all_with_a_prefix(one: bytes, other: bytes) -> None:
    assert one in exact_interval(one)
    assert (other in exact_interval(one)) == (other == one)
    prefix, key = one.replace(b"\xff", b"\xfe"), other.replace(b"\xff", b"\xfe")
    interval = prefix_interval(prefix)
    assert (key in interval) == key.startswith(prefix)
    assert prefix + key in interval


def test_prefix_interval_carries() -> None:
    assert prefix_interval(b"a\xfe") == KeyInterval(b"a\xfe", b"a\xff")
    assert prefix_interval(b"a\xff\xff") == KeyInterval(b"a\xff\xff", b"b")
    assert prefix_interval(b"") is EVERYTHING
    with pytest.raises(ValueError, match="no key starts with"):
        prefix_interval(b"\xff\xff")


@pytest.mark.parametrize(("start", "end"), [(b"", b""), (b"a", b"a"), (b"b", b"a")])
def test_rejects_empty_intervals(start: bytes, end: bytes) -> None:
    with pytest.raises(ValueError, match="not an interval"):
        KeyInterval(start, end)


SMALL = st.lists(
    st.builds(lambda a, b: (bytes(a), bytes(b)), *[st.lists(st.integers(0, 2), max_size=2)] * 2), max_size=6
)


@given(SMALL, st.lists(st.integers(0, 2), max_size=3).map(bytes))
def test_merge_returns_the_union(pairs: list[tuple[bytes, bytes]], key: bytes) -> None:
    intervals = [KeyInterval(start, end) for start, end in pairs if start < end]
    merged = merge(intervals)
    assert covers(merged, key) == any(key in interval for interval in intervals)
    assert all(before.end < after.start for before, after in pairwise(merged))
    assert merge(merged) == merged
    assert {bound for m in merged for bound in (m.start, m.end)} <= {b for i in intervals for b in (i.start, i.end)}


def starts(pattern: Pattern) -> list[bytes]:
    found = [interval.start for interval in pattern.intervals]
    assert pattern.intervals == merge(map(prefix_interval, found))
    return found


@pytest.mark.parametrize(
    ("text", "match", "prefixes"),
    [
        ("example.com/*", Match.PREFIX, [b"com,example)/"]),
        ("example.com/dir/*", Match.PREFIX, [b"com,example)/dir/"]),
        ("http://www.Example.com:80/A*", Match.PREFIX, [b"com,example)/a"]),
        ("example.com/a/../b//c/./*", Match.PREFIX, [b"com,example)/b/c/"]),
        ("example.com/a/..*", Match.PREFIX, [b"com,example)/a/.."]),
        ("example.com/%7Eu/%C3*", Match.PREFIX, [b"com,example)/~u/%25c3", b"com,example)/~u/%c3"]),
        ("example.com/100%25*", Match.PREFIX, [b"com,example)/100%25"]),
        ("example.com/page/?*", Match.PREFIX, [b"com,example)/page?"]),
        ("example.com/page?A=1&b*", Match.PREFIX, [b"com,example)/page?a=1&b"]),
        ("example.com/page?b=2&*", Match.PREFIX, [b"com,example)/page?b=2&"]),
        ("example.com/page?b=2&b*", Match.PREFIX, [b"com,example)/page?b=2&b"]),
        (f"example.com/page?sid={SESSION}&b=2*", Match.PREFIX, [b"com,example)/page?b=2"]),
        (f"example.com/page?sid={SESSION}*", Match.PREFIX, [f"com,example)/page?sid={SESSION}".encode()]),
        ("[2001:DB8::1]/*", Match.PREFIX, [b"2001:db8::1)/"]),
        ("münchen.de/*", Match.PREFIX, [b"de,xn--mnchen-3ya)/"]),
        ("*.example.com", Match.DOMAIN, SITE),
        ("*.example.com/*", Match.DOMAIN, SITE),
        *(("HTTP://*.Example.com/", Match.DOMAIN, SITE), ("*.example.com:80", Match.DOMAIN, SITE)),
        ("https://*.example.com:443/*", Match.DOMAIN, SITE),
        ("*.www.example.com", Match.DOMAIN, SITE),
        ("*.www.com", Match.DOMAIN, [b"com)", b"com,www,", b"com:"]),
        ("*.is", Match.DOMAIN, [b"is)", b"is,", b"is:"]),
        ("*.рф", Match.DOMAIN, [b"xn--p1ai)", b"xn--p1ai,", b"xn--p1ai:"]),
    ],
)
def test_parses_forms(text: str, match: Match, prefixes: list[bytes]) -> None:
    pattern = parse_pattern(f" {text}\n")
    assert (pattern.text, pattern.match, pattern.url) == (text, match, None)
    assert starts(pattern) == prefixes


@pytest.mark.parametrize(
    ("text", "match", "prefixes"),
    [
        ("example.com/dir", Match.PREFIX, [b"com,example)/dir"]),
        ("example.com/dir/", Match.PREFIX, [b"com,example)/dir/"]),
        ("example.com/dir/*", Match.PREFIX, [b"com,example)/dir/"]),
        ("example.com/a*b", Match.PREFIX, [b"com,example)/a*b"]),
        ("example.com/dir?", Match.PREFIX, [b"com,example)/dir?"]),
        ("example.com", Match.PREFIX, [b"com,example)/"]),
        ("http://www.example.com/whatever", Match.HOST, [b"com,example)", b"com,example:"]),
        ("example.com/*", Match.HOST, [b"com,example)", b"com,example:"]),
        ("example.com:8080", Match.HOST, [b"com,example:8080)"]),
        ("https://example.com:443", Match.HOST, [b"com,example)"]),
        ("[::1]", Match.HOST, [b"::1)", b"::1:"]),
        ("example.com", Match.DOMAIN, SITE),
        ("https://example.com/whatever", Match.DOMAIN, SITE),
        ("http://example.com:80/", Match.DOMAIN, SITE),
        ("https://www.example.com:443/page", Match.DOMAIN, SITE),
        ("*.example.com/whatever*", Match.DOMAIN, SITE),
        ("*", Match.DOMAIN, [b""]),
        ("*", Match.PREFIX, [b""]),
    ],
)
def test_parses_explicit_matches(text: str, match: Match, prefixes: list[bytes]) -> None:
    pattern = parse_pattern(text, match)
    assert pattern.match is match
    assert starts(pattern) == prefixes


@pytest.mark.parametrize("match", [None, Match.EXACT])
def test_exact_patterns(match: Match | None) -> None:
    pattern = parse_pattern("example.com", match)
    assert pattern == Pattern("example.com", Match.EXACT, (exact_interval(b"com,example)/"),))
    typed = "https://www.Example.com/Page/?#x"
    pattern = parse_pattern(f" {typed} ", match)
    assert pattern == Pattern(typed, Match.EXACT, (exact_interval(b"com,example)/page"),), typed)
    both = parse_pattern("example.com/%E9", match).intervals
    assert both == (exact_interval(b"com,example)/%25e9"), exact_interval(b"com,example)/%e9"))
    for text in ("example.com/a%2Ab%2a", "example.com/a*b*"):
        assert parse_pattern(text, Match.EXACT).intervals == (exact_interval(b"com,example)/a*b*"),)


ODD_HOSTS = st.text("abxyz019-_.~!$&'()+,;=ü", min_size=1, max_size=12).map(lambda label: f"a{label}.example.com")


@given(ODD_HOSTS | st.sampled_from(["it's.example.com", "a,b.example.com", "+", "a%20b.example.com", "%2A.com"]))
def test_url_with_any_host_matches_its_key(host: str) -> None:
    url = f"http://{host}/page"
    assert covers(parse_pattern(url).intervals, url_surtkey(url).encode())


@pytest.mark.parametrize("host", ["it's.example.com", "a,b.example.com", "+", "a+b.com"])
def test_unusual_hosts_need_no_scheme(host: str) -> None:
    assert keys(parse_pattern(f"{host}/*"), f"https://{host}/page") == [True]
    assert keys(parse_pattern(f"*.{host}"), f"https://below.{host}/page") == [True]


def test_asterisk_matches_everything() -> None:
    assert parse_pattern("*") == Pattern("*", Match.DOMAIN, (EVERYTHING,))
    assert covers((EVERYTHING,), url_surtkey("http://\U0010ffff.com/").encode())
    assert "\U0010ffff".encode() in EVERYTHING


@pytest.mark.parametrize(
    ("match", "texts"),
    [
        (None, ["", " ", "http://", "*.", "http://*.", "*.*", "**", "*/*", "http://*", "?", "#x", "*..com", ".com"]),
        (None, ["exa*mple.com", "exa*mple.com/*", "example.*", "http://exam*", "*.*.com", "example.com:*", "*.?*"]),
        (None, ["example.com/*/x", "example.com/**", "*.example.com/x*", "*.example.com/x", "*.example.com*"]),
        (None, ["*.example.com:8080", "com,example", "a b.com", "a.com,b.com", "example.com/a b", "example.com/\x00"]),
        (None, ["exa(mple).com", "/page", "foo://example.com/", "https:/example.com", "example.com:x", "a/\udce9"]),
        (None, ["example.com/%*", "example.com/x%E*", "example.com/#x*", "example.com?b&a=1*", "exa%mple.com"]),
        (None, ["example.com?b=2&a=1&c*", "example.com?b&&c*", "example.com%2Fx", "http://@/", "http://a|b.com/"]),
        (None, ["mailto:", "mailto:a@example.com", "tel:+1", "http:///page", "http://example.com:-2/"]),
        (None, ["example.com:99999", "http://a<b>/"]),
        (Match.HOST, ["", "*", "*.example.com", "example.*", "http://"]),
        (Match.DOMAIN, ["", "*.", "*.*", "example.com:8080", "*.example.com:443"]),
        (Match.PREFIX, ["", "exam*", "*.example.com", "*.example.com/*", "example.com/%4"]),
        (Match.EXACT, ["", "*", "*.example.com", "example.*"]),
    ],
)
def test_rejects_invalid_patterns(match: Match | None, texts: list[str]) -> None:
    advice = r"(patterns look|a URL looks) like .*example\.com/page|list them: "
    for text in texts:
        with pytest.raises(QueryError, match=advice) as error:
            parse_pattern(text, match)
        assert "\n" not in str(error.value), text


@pytest.mark.parametrize("text", ["*.{}/x", "*.{}.*", "{}.*", "{} x", "foo://{}", "{}/x*y", "{}!", "http://{}:x/"])
@pytest.mark.parametrize("match", [None, *Match])
def test_errors_can_show_any_pattern(text: str, match: Match | None) -> None:
    for inside in ("(" * 20_000, "\udcff"):
        with pytest.raises(QueryError) as caught:
            parse_pattern(text.format(inside), match)
        assert len(str(caught.value)) < 600
        assert str(caught.value).isprintable()


def takes(pattern: Pattern, hosts: list[str], rest: str) -> set[bool]:
    return set(keys(pattern, *(f"http://{host}{rest}" for host in hosts)))


def siblings(host: str) -> list[str]:
    label, dot, parent = host.partition(".")
    return [f"{label}{more}{dot}{parent}" for more in ("-shop", "0", "s", "-")] + [f"x{host}"]


@given(HOSTS, LABELS, LABELS, PATH_TEXT, PORTS)
def test_domain_matches_host_and_subdomains_only(host: str, a: str, b: str, path: str, port: str) -> None:
    pattern = parse_pattern(f"*.{host}")
    below = [host, f"www.{host}", f"{a}.{host}", f"{b}.{a}.{host}", f"{b}.www.{host}"]
    assert takes(pattern, below, f"{port}/{path}") == {True}
    assert takes(pattern, siblings(host), f"{port}/{path}") == {False}


@given(HOSTS, LABELS, PATH_TEXT, PORTS)
def test_host_matches_every_port_and_no_subdomain(host: str, a: str, path: str, port: str) -> None:
    pattern = parse_pattern(f"https://{host}/x", Match.HOST)
    assert takes(pattern, [host, f"www.{host}"], f"{port}/{path}") == {True}
    assert takes(pattern, [f"{a}.{host}", *siblings(host)], f"{port}/{path}") == {False}


@given(HOSTS, PATH_TEXT, st.text("ghijkl~-_", min_size=1, max_size=3), st.text("ghijkl/", max_size=4))
def test_prefix_matches_what_starts_with_it(host: str, path: str, more: str, rest: str) -> None:
    try:
        pattern = parse_pattern(f"{host}/{path}*")
    except QueryError:
        return
    assert all(keys(pattern, f"https://www.{host}/{path}{more}{rest}"))


@pytest.mark.parametrize(
    ("text", "used", "left"),
    [
        ("example.com/dir/*", ["/dir/x", "/dir//x"], ["/dir", "/dir/", "/directory"]),
        ("example.com/dir*", ["/dir", "/dir/", "/dir/x", "/directory"], ["/di", "/"]),
        ("example.com/page?*", ["/page?x", "/page/?x"], ["/page", "/pages?x"]),
        ("example.com/page?b=1*", ["/page?b=12", "/page?c&b=1"], ["/page?b=1&a=0"]),
        ("example.com/*", ["/", ":443/"], [":8080/"]),
        ("example.com:8080/*", [":8080/"], ["/", ":443/"]),
    ],
)
def test_prefix_edges(text: str, used: list[str], left: list[str]) -> None:
    pattern = parse_pattern(text)
    assert keys(pattern, *(f"https://example.com{rest}" for rest in used)) == [True] * len(used)
    assert keys(pattern, *(f"https://example.com{rest}" for rest in left)) == [False] * len(left)
    assert keys(pattern, *(f"http://{host}.example.com{used[0]}" for host in ("a", "www"))) == [False, True]
