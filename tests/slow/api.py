"""Questions without sense, and some with, to every face of a server: it is never at fault, nor slow, nor larger.

Most are put to the application itself, which takes any bytes; some go over a socket, where more is refused.
"""

import asyncio
import json
import re
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any
from urllib.parse import quote_from_bytes, unquote, urlsplit

import catalogue
from catalogue.commoncrawl.manifests import parse_collinfo
from catalogue.server.app import application
from catalogue.server.service import Service
from catalogue.settings import Settings
from tests.slow.mutators import MUTATORS
from tests.slow.parsers import mirror_of
from tests.slow.sizes import resident
from tests.support.serving import running

_SLOWEST = 1.0
"""Seconds of CPU that of a hundred questions but one may take."""
_MOST_GROWTH, _CACHES = 0.1, 32 << 20
"""By which the process may grow from two fifths of the way on; and bytes by which what it remembers may, besides."""
_OVER_A_SOCKET = 0.1
_SENT = re.compile(rb"[!-~]*")
"""What the target of a request may be made of; all else is refused before the application is asked."""

NASTY = [
    b"",
    b"%00",
    b"%ff%fe",
    b"%0d%0aSet-Cookie:%20a=b",
    b"%0a",
    b"-1",
    b"-99999999999999999999",
    b"99999999999999999999",
    b"1e9",
    b"0x10",
    b"NaN",
    b"%E2%80%AEmoc.elpmaxe",
    b"%F0%9F%98%80",
    b"%ED%A0%80",
    b"%",
    b"%zz",
    b"%2525",
    b"..%2f..%2fetc%2fpasswd",
    b"%27%20OR%201=1--",
    b"%3Cscript%3Ealert(1)%3C/script%3E",
    b"{{7*7}}",
    b"${jndi:x}",
    b"*" * 50,
    b"(" * 500,
    b"x" * 3000,
    b"x,".join([b""] * 200),
    b"[::1",
    b"http://[::ffff:1.2.3.4]:99999/",
    b"http://0x7f.1/",
    b"xn--" + b"9" * 80 + b".com",
]
FILTERS = [
    b"~url:(a%2B)%2B$",
    b"~url:((a{1000}){1000})",
    b"~url:(a|aa)%2B$",
    b"~url:(.*)*(.*)*(.*)*x",
    b"~:" + b".*" * 400 + b"x",
    b"!~mime:(" + b"text|" * 300 + b"x)",
    b"~url:(?=x)",
    b"~url:[",
    b"~url:\\C",
    b"=status:200",
    b"!=status:200",
    b"=status:%00",
    b"mime:html",
    b"=:",
    b"~",
    b"!",
]
PLAIN = [
    b"example.com",
    b"*.example.com",
    b"example.com/*",
    b"*.com",
    b"http://www.example.com/a?b=1",
    b"2022",
    b"json",
]
PLAIN += [
    b"text",
    b"cdxj",
    b"prefix",
    b"domain",
    b"host",
    b"exact",
    b"5",
    b"1",
    b"0",
    b"true",
    b"reverse",
    b"url,status",
]
PLAIN += [b"20220101", b"eng", b"text/html", b"200", b"latest", b"all", b"newest", b"closest", b"urlkey,timestamp"]
NAMES = [b"url", b"matchType", b"from", b"to", b"limit", b"filter", b"fl", b"fields", b"output", b"page", b"pageSize"]
NAMES += [b"sort", b"showNumPages", b"closest", b"reverse", b"collapse", b"showPagedIndex", b"from_ts", b"crawl"]
NAMES += [b"status", b"mime", b"language", b"columns", b"key", b"after", b"order", b"nosuch", b"", b"%00", b"url[]"]
ALLOWED = {200, 204, 307, 400, 403, 404, 405, 422}
"""Of answers; 503 and the like would say that the server is at fault, or busy, and it is asked one thing at a time."""


@dataclass(frozen=True)
class Asked:
    """A request."""

    path: bytes
    query: bytes
    method: str = "GET"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    kind: str
    body: bytes


def made(rng: Random, crawl: str) -> Asked:
    """A request, more or less like one."""
    paths = [f"/{crawl}-index", "/api/query", "/api/plan", "/search", "/api/row_groups"]
    path = rng.choice(
        [*paths, *paths, "/", "/status", "/api/status", "/collinfo.json", f"/{crawl}", "/api/openapi.json"]
    )
    path = path if rng.random() < 0.85 else _odd_path(rng, crawl)
    parts = [b"url=" + rng.choice(PLAIN[:5])] if rng.random() < 0.7 else []
    parts += [
        rng.choice(NAMES) + rng.choice([b"=", b"=", b"=", b"", b"=="]) + _value(rng)
        for _ in range(rng.choice([0, 1, 1, 2, 3, 6]))
    ]
    if rng.random() < 0.2:
        parts.append(b"filter=" + rng.choice(FILTERS))
    rng.shuffle(parts)
    query = b"&".join(parts)
    # What ends a line would be another request.
    if rng.random() < 0.1 and query:
        query = MUTATORS[rng.choice([*MUTATORS])](query, rng, [b"url=x&limit=1"]).translate(None, b"\r\n")
    method = rng.choice(["HEAD", "POST", "OPTIONS", "DELETE", "TRACE"]) if rng.random() < 0.05 else "GET"
    return Asked(path.encode(), query, method)


def _value(rng: Random) -> bytes:
    chance = rng.random()
    if chance < 0.005:
        return rng.choice([b"a", b"%2A", b"(", b"1", b"a.", b"/"]) * 1_000_000
    if chance < 0.05:
        return quote_from_bytes(rng.randbytes(rng.choice([1, 20, 300]))).encode()
    value = rng.choice(PLAIN if chance < 0.55 else [*NASTY, *FILTERS])
    return value + rng.choice(NASTY) if chance > 0.9 else value


def _odd_path(rng: Random, crawl: str) -> str:
    nasty = rng.choice(NASTY).decode()
    url = rng.choice(["http://example.com/", "example.com", "http%3A%2F%2Fexample.com%2F", nasty])
    moment = rng.choice(
        ["2022id_", "20220815010203warc_", "2022meta_", "2022text_", "1", "9" * 15 + "id_", f"2022{nasty}"]
    )
    return rng.choice(
        [
            f"/{crawl}/{moment}/{url}",
            f"/{nasty}-index",
            f"/{crawl}-index/{nasty}",
            f"/api/{nasty}",
            f"/{nasty}",
            f"//{nasty}",
            f"/static/{nasty}",
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            f"/{crawl}/{nasty}",
        ]
    )


def put(app: Any, asked: Asked) -> Answer:
    """Put a request to the application, as a server of HTTP does."""
    return asyncio.run(_put(app, asked))


async def _put(app: Any, asked: Asked) -> Answer:
    raw = asked.path.decode("latin-1")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": asked.path,
        "root_path": "",
        "query_string": asked.query,
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[dict[str, Any]] = []
    waiting = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if sent:
            await waiting.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.lower(): value for name, value in sent[0]["headers"]}
    for name, value in headers.items():
        assert not {*b"\r\n\0"} & {*(name + value)}, "a header ends early"
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], headers.get(b"content-type", b"").decode(), body)


def put_raw(port: int, asked: Asked) -> Answer:
    """The same over a socket, byte for byte."""
    target = asked.path + b"?" + asked.query
    request = asked.method.encode() + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with suppress(ConnectionError):  # too long, and refused before all of it was sent
            connection.sendall(request)
        with suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                received += piece
    if not received:  # it was so long that the refusal was lost with the connection
        assert len(request) > 64 << 10
        return Answer(400, "", b"too long")
    head, _, body = received.partition(b"\r\n\r\n")
    kinds = [
        line.partition(b":")[2].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"content-type")
    ]
    return Answer(int(head.split(b" ", 2)[1]), b"".join(kinds).decode(), body)


def check(asked: Asked, answer: Answer) -> None:
    """Nobody is told more than a line of what is wrong, and nobody that the server is at fault."""
    assert answer.status in ALLOWED, answer.status
    assert b"Traceback" not in answer.body
    if answer.status >= 400 and answer.kind.startswith("application/json") and asked.method != "HEAD":
        message = json.loads(answer.body)["message"]
        assert isinstance(message, str)
        assert message
        assert b"\n" not in answer.body
        assert len(answer.body) < 20_000
    if answer.status == 200 and answer.kind.startswith(("application/json", "text/x-ndjson")) and asked.method == "GET":
        for line in answer.body.splitlines() if "ndjson" in answer.kind else [answer.body]:
            json.loads(line)


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Ask so often; see ``tests.slow.__main__``."""
    rng = Random(f"api {seed}")
    mirror = mirror_of(folder / "mirror")
    settings = Settings(source=str(mirror), cache=folder / "cache")
    crawl = parse_collinfo((mirror / "collinfo.json").read_bytes())[0].id
    with catalogue.open(folder / "data", settings=settings) as cat:
        cat.harvest(crawl, subsets="all")
    failures: list[str] = []
    service = Service(folder / "data", settings, at_once=2, notify=failures.append)
    app = application(service)
    statuses, times, sizes = Counter[int](), list[float](), list[int]()
    slowest: tuple[float, bytes] = (0.0, b"")
    try:
        with running(service) as address:
            port = urlsplit(address).port or 0
            for number in range(count):
                asked = made(rng, crawl)
                over = rng.random() < _OVER_A_SOCKET or not _SENT.fullmatch(asked.path + asked.query)
                began, cpu = perf_counter(), process_time()
                try:
                    answer = put_raw(port, asked) if over else put(app, asked)
                    check(asked, answer)
                    assert not failures, failures
                except Exception as error:
                    shown = f"{asked.method} {asked.path!r}?{asked.query[:2000]!r} of {len(asked.query)} bytes"
                    raise AssertionError(
                        f"{number} of seed {seed}: {shown}: {type(error).__name__}: {error}"
                    ) from error
                took = min(perf_counter() - began, process_time() - cpu)  # others load the machine
                times.append(took)
                slowest = max(slowest, (took, asked.path + b"?" + asked.query[:300]))
                statuses[answer.status] += 1
                if number % max(1, count // 100) == 0:
                    sizes.append(resident())
    finally:
        service.close()
    # What one question takes comes and goes; so it is what there is in the middle, early and late, that counts.
    settled = sizes[len(sizes) * 2 // 5 :]
    early, late_on = (median(part) for part in (settled[: len(settled) // 3], settled[-len(settled) // 3 :]))
    grew = late_on / max(1.0, early) - 1
    assert grew <= _MOST_GROWTH or late_on - early < _CACHES, f"the process grew by {grew:.0%} of {early:,} bytes"
    times.sort()
    late = times[int(len(times) * 0.99)]
    assert late < _SLOWEST, f"one in a hundred takes {late:.2f} s, such as {slowest}"
    return {
        "statuses": dict(sorted(statuses.items())),
        "median": round(times[len(times) // 2], 4),
        "p99": round(late, 4),
        "slowest": round(slowest[0], 3),
        "slowest of all": slowest[1][:200].decode("latin-1"),
        "grew": round(grew, 4),
    }
