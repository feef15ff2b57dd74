"""Secrets are never printed, logged or stored, and only the hosts that the user named are contacted.

All commands of all tests have secrets in their environment, which their output is searched for; see
``tests.support.canaries``.
"""

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import QueryError, SourceError
from catalogue.formatting import without_secrets
from catalogue.session import Session
from catalogue.settings import DEFAULT_SOURCE, Settings, load_settings
from catalogue.source.observe import hide_credentials
from tests.support import canaries
from tests.support.canaries import MARK
from tests.support.commands import Command
from tests.support.crawls import BARE, bare_crawl
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.miniatures import OLD
from tests.support.serving import get, serving

ADDRESSES = [
    f"https://me:{MARK}@data.example/",
    f"https://data.example/?X-Amz-Signature={MARK}",
    f"me:{MARK}@data.example",
    f"data.example/?X-Amz-Signature={MARK}",
    f"//me:{MARK}@data.example/",
    f"https://me:{MARK}@[::1",
    *(f"https://{user}@data.example/" for user in (MARK, f":{MARK}", f"me:{MARK}@x")),
    *(
        f"https://data.example{rest}"
        for rest in ("/?", f"/#{MARK}", f"/a {MARK}/", f"/{MARK}\r\nX: 1/", f"/\x1b{MARK}")
    ),
    *(f"https://data.example:{port}/" for port in (MARK, f"99999/{MARK}")),
    *(f"https://me@{MARK}.example/", f"https://[{MARK}/", "https://", f"https:///{MARK}", f"s3:///{MARK}"),
    *(f"s3://{rest}" for rest in (f"key:{MARK}@bucket/", f"x/?versionId={MARK}", f"x:80/{MARK}")),
    f"ftp://me:{MARK}@data.example/",
]
"""Addresses of sources that have a secret, or no host."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_settings_hold_no_secret_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QueryError, match=f"without query or credentials, such as {DEFAULT_SOURCE}") as raised:
        Settings(source=address)
    assert MARK not in repr(raised.value)
    assert ("%20" in str(raised.value)) == (" " in address)
    assert raised.value.exit_status == 2
    with pytest.raises(QueryError) as raised:
        load_settings(source=address)
    assert MARK not in repr(raised.value)
    monkeypatch.setenv("CATALOGUE_SOURCE", address)
    with pytest.raises(QueryError) as raised:
        catalogue.open()
    assert MARK not in repr(raised.value)


COMMANDS = [
    "--source {address} plan example.com",
    "--source {address} export ducklake",
    "--source {address} status",
    "--source {address} doctor",
    "pull {address}",
    "export iceberg table --location {address}",
    "fetch * -o {address}/found.warc.gz --yes",
    "export snapshot {address}",
    "harvest --table hosts --key host --manifest {address}",
    "harvest --table hosts --key host {address}part",
    "query * --scheduler tcp://me:{mark}@127.0.0.1:9",
]


def test_commands_neither_print_nor_store_secrets(data: Path, mirror: Path, tmp_path: Path) -> None:
    command = Command(data, str(mirror), tmp_path)
    for words in COMMANDS:
        # Other commands would use the last address as a file name.
        for address in ADDRESSES[1:3] if words.startswith(("--source", "pull")) else ADDRESSES[:1]:
            ran = command("-v", *words.format(address=address, mark=MARK).split())  # this searches the output
            assert ran.status in {1, 2}, (words, address, ran)
    assert not canaries.kept_in(tmp_path)


def test_sdk_logs_contain_no_credentials() -> None:
    hide_credentials()
    for name in ("botocore.auth", "botocore.endpoint", "botocore.parsers"):
        logger = logging.getLogger(name)
        leaks: list[str] = []
        handler = canaries.Watch(leaks.append)
        logger.addHandler(handler)
        logger.debug("x-amz-security-token:%s", MARK)
        logger.removeHandler(handler)
        assert leaks == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://data.example/a/b", "https://data.example/a/b"),
        (f"https://me:{MARK}@data.example/a?b#c", "https://data.example/a"),
        (f"https://a@b:{MARK}@data.example/a@b", "https://data.example/a@b"),
        (f"/b?X-Amz-Signature={MARK}\n&X=1", "/b"),
        (f"me:{MARK}@proxy.example:3128", "proxy.example:3128"),
        (f"//me:{MARK}@other.example/x", "//other.example/x"),
        ("127.0.0.1,.example", "127.0.0.1,.example"),
        ("nowhere", "nowhere"),
    ],
)
def test_shows_addresses_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_verbose_shows_settings_of_the_environment(command: Command) -> None:
    with FaultServer({}) as proxy:
        place = proxy.url.removeprefix("http://").rstrip("/")
        ran = command(
            *("crawls", "-v", "--source", "http://data.example/a"),
            http_proxy=f"http://me:{MARK}-of-the-proxy@{place}",
            no_proxy="direct.example",
            all_proxy="http://not-read.example",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:9/?X-Amz-Signature={MARK}",
        )
        exchange, *_ = proxy.log  # the list of crawls, then manifests
    assert ran.status == 1
    assert exchange.headers["host"] == "data.example"
    assert exchange.headers["proxy-authorization"].startswith("Basic ")
    assert exchange.path == "http://data.example/a/collinfo.json"  # the form of requests to proxies
    assert ran.err.splitlines()[0].split(", ") == [
        "source: http://data.example/a",
        f"http_proxy=http://{place}",
        "https_proxy=http://127.0.0.1:9",
        "no_proxy=direct.example",
        "AWS_ENDPOINT_URL=http://127.0.0.1:9/",
    ]
    assert "Traceback" in ran.err  # also searched


def test_server_shows_no_secret(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in canaries.ENVIRONMENT.items():
        monkeypatch.setenv(name, secret)
    script = always(Fault(Kind.REDIRECT_AWAY, target=f"https://me:{MARK}@127.0.0.2/?X-Amz-Signature={MARK}&"))
    with FaultServer({}, script=script) as source:
        settings = Settings(source=source.url, cache=tmp_path / "cache", cache_size=0)
        with serving(data, settings) as address:
            for target in (
                f"/{OLD}-index?url=*.example.com&output=json",
                f"/api/captures?url=*.example.com&crawl={OLD}",
                f"/search?url=*.example.com&crawl={OLD}",
                "/",
                "/status",
                f"/collinfo.json?{MARK}",
            ):
                answer = get(address, target)
                assert MARK not in answer.text + repr(answer.headers)
        with Catalogue(Session(data, settings)) as cat, pytest.raises(SourceError, match="redirects to") as raised:
            cat.captures("*", crawls=OLD).to_arrow()
        shown = [cat, cat.session.settings, cat.captures("*"), cat.captures("*").plan]
        assert MARK not in repr([*shown, raised.value, raised.value.__cause__])
        assert source.requests > 2
    assert not canaries.kept_in(tmp_path)


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """The target of redirects, which must not be contacted."""
    with closing(socket.create_server(("127.0.0.2", 0))) as listening:
        listening.setblocking(False)  # noqa: FBT003 - has no keyword
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


PLACES = [
    "http://127.0.0.2:{port}/",
    "//127.0.0.2:{port}/",
    "https://127.0.0.2:{port}/",
    "http://me@127.0.0.2:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "ftp://127.0.0.2:{port}/",
    "file:///etc/",
    "/elsewhere/",
]


def test_commands_follow_no_redirects(
    elsewhere: socket.socket, data: Path, harvested: Catalogue, crawl: str, tmp_path: Path
) -> None:
    """The command would report connections to other machines."""
    port = elsewhere.getsockname()[1]
    places = iter(PLACES * 100)

    def script(_: Request) -> Fault:
        return Fault(Kind.REDIRECT_AWAY, variant=next(numbers), target=next(places).format(port=port))

    numbers = iter(range(10_000))
    rows = harvested.captures("*.com", crawls=crawl).to_arrow().slice(0, 3).to_pylist()
    (tmp_path / "captures.jsonl").write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    assert Command(data, str(bare_crawl(tmp_path / "bare")), tmp_path)("harvest", "--crawl", BARE).status == 0
    with FaultServer({}, script=script) as source:
        command = Command(data, source.url, tmp_path)
        for words in (
            ["crawls"],
            ["harvest", "--crawl", crawl, "--refresh"],
            ["query", "*", "--crawl", crawl],
            ["query", "*", "--crawl", OLD],
            ["sample", "*", "-n", "3", "--crawl", crawl],
            ["backfill", "--crawl", BARE, "--yes"],
            ["fetch", "--captures", "captures.jsonl", "-o", "found.warc.gz", "--yes"],
            ["pull", source.url],
            ["old-index", "example.com"],
        ):
            ran = command(*words)
            assert ran.status in {1, 75}, (words, ran)
            assert "redirect" in ran.err, (words, ran)
        log = source.settle()
    assert len(log) > len(PLACES)
    assert not [exchange for exchange in log if "elsewhere" in exchange.path]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1"])
def test_commands_contact_only_the_named_host(host: str, command: Command, mirror: Path) -> None:
    """A named host is contacted over ``http://``, too; unusual spellings of addresses are errors or the same host."""
    with FaultServer(mirror) as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        ran = command("crawls", "--json", "--source", f"http://{host}:{port}/", no_proxy="*")
        assert ran.status == 0, ran.err
        assert [exchange.headers["host"] for exchange in server.log] == [f"{host}:{port}"]
