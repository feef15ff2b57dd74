"""Values of a crawl for requests to its CDX API."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.cdx_oracle import Capture, Oracle, plain_key, read_captures

NOWHERE = "nosuch-host.example"
"""A host without captures."""


@dataclass(frozen=True)
class Known:
    """Values of a crawl for templates; all URLs are plain."""

    crawl: str
    values: dict[str, Any]

    def fill(self, template: str) -> str:
        """Fill in a template, with values that are percent-encoded."""
        return template.format_map(self.values)


def known_of(crawl: str, oracle: Oracle) -> Known:
    captures = oracle.captures
    plain = [capture for capture in captures if is_plain(capture)]
    by_key = {key: [*each] for key, each in groupby(captures, lambda capture: capture.key)}
    host = _well_known(captures)
    tld = Counter(capture.key.partition(",")[0] for capture in plain).most_common(1)[0][0]
    of_host = [each for each in captures if re.match(",".join(host.split(".")[::-1]) + r"[:,)]", each.key)]
    folders = (re.match(r"https?://[^/]+/[a-z0-9-]+/", each.fields["url"]) for each in plain)
    moments = sorted(capture.timestamp for capture in of_host)
    once = next(
        capture
        for capture in plain
        if len(by_key[capture.key]) == 1
        and {"languages", "encoding", "mime"} <= {*capture.fields}
        and re.fullmatch(rf"{tld},.*\)/\w[^?]*", capture.key)
    )

    def first(condition: Callable[[Capture], bool]) -> str:
        return next(capture.fields["url"] for capture in plain if condition(capture))

    def second(name: str) -> str:
        return Counter(each.fields.get(name, "") for each in of_host).most_common(2)[1][0]

    def subsets(capture: Capture) -> int:
        return len({each.fields["filename"].split("/")[-2] for each in by_key[capture.key]})

    values = {
        "nowhere": NOWHERE,
        "host": host,  # with several captures, also of a subdomain and of a port
        "url": once.fields["url"],  # one capture, with all fields that a page can have
        "often": max(plain, key=lambda capture: len(by_key[capture.key])).fields["url"],
        "mixed": max(plain, key=lambda capture: (subsets(capture), -len(by_key[capture.key]))).fields["url"],
        "redirected": first(lambda capture: "redirect" in capture.fields),
        "truncated": first(lambda capture: "truncated" in capture.fields),
        "without_language": first(lambda capture: "languages" not in capture.fields),
        "argued": first(lambda capture: "?" in capture.key and "&" not in capture.key),
        "directory": Counter(found[0] for found in folders if found).most_common(1)[0][0],
        "tld": tld,
        "early": moments[len(moments) // 4],
        "late": moments[len(moments) * 3 // 4],
        "mime": second("mime"),
        "status": second("status"),
    }
    quoted: dict[str, Any] = {name: quote(value, safe="") for name, value in values.items()}
    the = {name: quote(value, safe="") for name, value in once.fields.items()}
    return Known(crawl, {"crawl": crawl, "the": the, **quoted})


def oracle_of(mirror: Path, crawl: str) -> Oracle:
    return Oracle(read_captures(mirror, crawl))


def is_plain(capture: Capture) -> bool:
    try:
        return plain_key(capture.fields["url"]) == capture.key and not capture.key[0].isdigit()
    except ValueError:
        return False


def _well_known(captures: Sequence[Capture]) -> str:
    """Return the host of two labels with most captures, of those with a port and a subdomain."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for capture in captures:
        if matched := re.match(r"([a-z]+,[a-z0-9-]+)([:,)])", capture.key):
            found[matched[1]][matched[2]] += 1
    best = max(found, key=lambda host: (len(found[host]), found[host].total()))
    assert len(found[best]) == 3, f"{best} is not well known"
    return ".".join(reversed(best.split(",")))
