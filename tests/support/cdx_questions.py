"""Random requests to a CDX server, with the expected answers."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from urllib.parse import urlencode

from tests.support.cdx_exchanges import Reply, check_pages, requested_page, send
from tests.support.cdx_known import is_plain
from tests.support.cdx_oracle import Capture, Oracle, Page, parameters, plain_key

_MIMES = ("text/html", "application/pdf", "unk", "html")
_FILTERS = ("=status:200", "!=status:200", "status:30", "~status:[345]..", "!~mime:(text/.*|unk)", "=languages:eng")
_CONDITIONS: Sequence[Callable[[Random], dict[str, str | list[str]]]] = (
    lambda random: {"filter": random.choice(_FILTERS)},
    lambda random: {"filter": random.sample(_FILTERS, 2)},
    lambda random: {"filter": f"mime:{random.choice(_MIMES)}"},
    lambda random: {"from": f"202208{random.randrange(7, 22):02}"},
    lambda random: {"to": f"202208{random.randrange(7, 22):02}1{random.randrange(10)}"},
    lambda random: {"limit": str(random.choice([1, 3, 50, 1000]))},
    lambda random: {"sort": "reverse", "limit": str(random.choice([2, 100]))},
    lambda random: {"fl": ",".join(random.sample(["url", "timestamp", "status", "digest", "languages"], 3))},
    lambda random: {"output": random.choice(["json", "text"])},
    lambda random: {"pageSize": random.choice(["1", "1", "2"])},
    lambda random: {"page": random.choice(["0", "0", "1", "2"]), "pageSize": "1"},
    lambda random: {"showNumPages": "true", "pageSize": random.choice(["1", "5"])},
)


@dataclass(frozen=True, slots=True)
class Question:
    """A request and the expected answer."""

    path: str
    status: int
    type: str
    body: bytes

    def error(self, status: int, media_type: str, body: bytes) -> str | None:
        """Describe the difference of an answer; None if there is none."""
        if (status, media_type, body) == (self.status, self.type.lower(), self.body):
            return None
        return f"{self.path}: {status} {media_type} {body[:300]!r} instead of {self.status} {self.body[:300]!r}"


class SiteOracle(Oracle):
    """Scans only the captures of the site of a query."""

    def __init__(self, captures: Sequence[Capture]) -> None:
        super().__init__(captures)
        self.sites: dict[str, list[Capture]] = {}
        for site, found in groupby(captures, lambda capture: _site(capture.key)):
            self.sites.setdefault(site, []).extend(found)

    def matching(self, query: str) -> list[Capture]:
        _, matches = self._match(parameters(query))
        url = parameters(query)["url"][-1].removeprefix("*.").removesuffix("*")
        site = self.sites.get(_site(self._keys.get(url) or plain_key(url)), ())
        return [capture for capture in site if matches(capture.key)]


def _site(key: str) -> str:
    """Return the last two labels of the host of a key."""
    return ",".join(key.partition(")")[0].partition(":")[0].split(",")[:2])


class Questions:
    """Makes questions for a server, whose pages are checked before."""

    def __init__(self, address: str, crawl: str, oracle: SiteOracle, random: Random) -> None:
        self._address, self._crawl, self._oracle, self._random = address, crawl, oracle, random
        self._pages_of: dict[str, list[Page]] = {}
        self._sites = [*_plain_urls(oracle)]

    def choose(self) -> Question:
        random = self._random
        while True:
            words: dict[str, str | list[str]] = {**self._target()}
            for choose in random.sample(_CONDITIONS, random.choice([0, 1, 1, 2])):
                words |= choose(random)
            query = urlencode(words, doseq=True)
            return self._ask(query)

    def _target(self) -> dict[str, str]:
        random = self._random
        url = random.choice(random.choice(self._sites))
        netloc, path = url.split("/")[2], url.partition("?")[0]
        host = netloc.partition(":")[0]
        return random.choices(
            [
                {"url": url},
                {"url": host, "matchType": "host"},
                {"url": f"*.{host.removeprefix('www.')}"},
                {"url": f"{path.rpartition('/')[0]}/*"},
                {"url": path[: random.randint(len(netloc) + 8, len(path))], "matchType": "prefix"},
                {"url": f"no-such-{random.randrange(1000)}.{host}/"},
            ],
            [6, 2, 2, 2, 1, 1],
        )[0]

    def _ask(self, query: str) -> Question:
        path = f"/{self._crawl}-index?{query}"
        pages = check_pages(self._send, self._oracle, self._crawl, query, self._pages_of)
        if "showNumPages" in parameters(query):
            reply = self._send(path)
            found = json.loads(reply.body)["pages"]
            assert (reply.status, found) == (200, len(pages) if pages[0].captures else 0), f"{path}: {reply}"
            return Question(path, reply.status, reply.type, reply.body)
        expected = self._oracle.answer(query, requested_page(query, pages))
        return Question(path, expected.status, expected.type, expected.body.encode())

    def _send(self, path: str) -> Reply:
        return send(self._address, path)


def _plain_urls(oracle: SiteOracle) -> Iterator[list[str]]:
    """Yield the plain URLs of each site that has only ASCII URLs."""
    for captures in oracle.sites.values():
        plain = [capture.fields["url"] for capture in captures if is_plain(capture)]
        if plain and all(capture.fields["url"].isascii() for capture in captures):
            yield plain
