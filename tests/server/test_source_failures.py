"""Answers in several parts, and failures of the source."""

import socket
from contextlib import ExitStack
from http.client import IncompleteRead
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from catalogue.settings import Settings
from tests.support.catalogues import harvested_in
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.faults import Fault, FaultServer, Kind
from tests.support.gates import Gate
from tests.support.metrics import answers, samples
from tests.support.serving import Failing, get, served_from, serving


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A source with more captures than a page has, and their keys in order."""
    keys = [f"com,example)/{number:05}" for number in range(18_000)]
    of_files = (table(keys[:9000]), table(keys[9000:]))
    return crawl_of(tmp_path_factory.mktemp("large"), *of_files, row_group_size=1500), keys


@pytest.mark.in_soak
def test_streams_parts(large: tuple[Path, list[str]], tmp_path: Path) -> None:
    mirror, keys = large
    path = f"/{CRAWL}-index?url=*&pageSize=1000&fl=urlkey&output=text"
    with serving(*harvested_in(tmp_path, mirror)) as address:
        pages = get(address, f"{path}&showNumPages=true").json
        assert pages["pages"] == 1
        assert pages["blocks"] > 5
        answer = get(address, path)
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.text.splitlines() == keys
        assert get(address, f"{path}&sort=reverse").text.splitlines() == keys[::-1]
        assert get(address, f"{path}&limit=17000").text.splitlines() == keys[:17_000]


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("fault", "least"),
    [(Fault(Kind.BLOCKED), 200), (Fault(Kind.RETRY_AFTER, retry_after=90), 60), (Fault(Kind.DISCONNECT), 1)],
    ids=lambda value: value.kind.value if isinstance(value, Fault) else "",
)
def test_source_failure_is_503_with_retry_after(
    fault: Fault, least: int, mirror: Path, untaught_data: Path, settings: Settings, crawl: str, tmp_path: Path
) -> None:
    failing = Failing(fault)
    with (
        FaultServer(mirror, script=failing) as source,
        served_from(source.url, untaught_data, settings, tmp_path, patience=0.5) as address,
    ):
        failing.begun.set()
        paths = ("{}-index?url=example.com/*", "api/query?url=example.com/*&crawl={}", "{}/2022id_/http://example.com/")
        for path in (paths[0], *paths):
            answer = get(address, f"/{path.format(crawl)}")
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) >= least
            assert answer.json["message"]
        assert source.requests < 40
        found = samples(address)
        assert (found["catalogue_source_pause_seconds",] > least / 2) == (fault.kind is not Kind.DISCONNECT)
        assert found["catalogue_source_blocks",] == (fault.kind is Kind.BLOCKED)
        if fault.kind is Kind.BLOCKED:
            assert source.requests < 10
        assert get(address, f"/{crawl}-index?url=example.com/*&page=x").status == 400  # needs no source
        assert get(address, f"/{crawl}-index?url=example.com&from=2050").status == 404


def test_closes_connection_if_a_part_fails(large: tuple[Path, list[str]], settings: Settings, tmp_path: Path) -> None:
    mirror, keys = large
    failing, leaving = Failing(Fault(Kind.DISCONNECT)), Event()
    gate, route, messages = Gate(lambda _: leaving.is_set()), "/{crawl}-index", list[str]()
    with FaultServer(mirror, script=failing, gate=gate) as source, ExitStack() as stack:
        data, _ = harvested_in(tmp_path / "harvested", source.url)
        serve = served_from(source.url, data, settings, tmp_path, patience=0.5, notify=messages.append)
        address = stack.enter_context(serve)
        path = f"/{CRAWL}-index?url=*&fl=urlkey&output=text"
        first = get(address, path)  # cached from now on
        assert first.text.splitlines() == keys[: first.text.count("\n")] != keys
        failing.begun.set()
        assert get(address, path).body == first.body
        assert get(address, f"{path}&page=1").status == 503
        with pytest.raises(IncompleteRead) as caught:
            get(address, f"{path}&pageSize=1000")
        assert caught.value.partial == first.body
        while (found := answers(address))[route, "5xx"] < 2:  # they are counted after they were sent
            pass
        assert found[route, "2xx"] == 2

        failing.begun.clear()
        leaving.set()
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0)) as client:
            client.sendall(f"GET {path}&pageSize=1000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            gate.wait()  # the client leaves during the second part, which is no failure
        while (found := answers(address))[route, "2xx"] + found[route, "5xx"] < 5:
            pass
        assert found[route, "5xx"] == 2
        assert [each.partition(":")[0] for each in messages] == [f"/{CRAWL}-index failed"]
        assert "RuntimeError" not in messages[0]
