"""Harvesting: one request a file; faults lose no footer and store no wrong one."""

import gzip
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import catalogue
from catalogue import errors
from catalogue.commoncrawl.datasets import IndexFile, manifest_path, parse_manifest
from catalogue.errors import OF_ONE_FILE, SourceError, UnknownCrawl
from catalogue.harvest.harvest import Harvested, harvest
from catalogue.parquet.footer import USUAL_TAIL, footer_length
from catalogue.parquet.thrift import BINARY, encode_struct
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.support.clocks import FakeClock
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.warm import Forked

ALL = ("warc", "crawldiagnostics", "robotstxt")


def listed(mirror: Path, crawl: str) -> list[IndexFile]:
    return parse_manifest(crawl, (mirror / manifest_path(crawl)).read_bytes())


def served_files(mirror: Path, crawl: str) -> dict[str, bytes]:
    paths = [*(file.path for file in listed(mirror, crawl)), manifest_path(crawl), "collinfo.json"]
    return {path: (mirror / path).read_bytes() for path in paths}


@pytest.fixture(scope="session")
def crawls(mirror: Path) -> list[str]:
    """The crawls of the mirror that have a table, newest first."""
    return sorted((path.name for path in (mirror / "crawl-data").iterdir()), reverse=True)


@pytest.fixture(scope="session")
def crawl(mirror: Path, crawls: list[str]) -> str:
    """The crawl with most files."""
    return max(crawls, key=lambda name: len(listed(mirror, name)))


@pytest.fixture(scope="session")
def footers(mirror: Path) -> dict[str, bytes]:
    found = {}
    for path in mirror.rglob("*.parquet"):
        content = path.read_bytes()
        length = footer_length(content[-8:])
        found[str(path.relative_to(mirror))] = content[-8 - length : -8]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "footers.sqlite", create=True) as made:
        yield made


def stored(store: Store) -> dict[str, bytes]:
    return {path: value.data for path in store.keys("files") if (value := store.get("files", path))}


def run(server: FaultServer, store: Store, crawl: str) -> Harvested:
    settings = Settings(source=server.url, connections=4, cache=store.path.parent)
    with closing(Session(store.path.parent, settings, clock=FakeClock)) as session:
        return harvest(session, crawl, iter(ALL))


def test_makes_one_request_a_file_once_and_stores_the_footers(
    mirror: Path, crawls: list[str], footers: dict[str, bytes], tmp_path: Path
) -> None:
    with FaultServer(mirror) as server, catalogue.open(tmp_path, settings=Settings(source=server.url)) as cat:
        cat.harvest("all", subsets="all")
        requested = Counter(exchange.path for exchange in server.log)
        files = [file.path for name in crawls for file in listed(mirror, name)]
        manifests = [manifest_path(name) for name in crawls]
        assert requested == Counter([*files, *manifests, "collinfo.json"])
        assert {exchange.method for exchange in server.log} == {"GET"}
        assert stored(cat.session.store) == footers
        assert all(
            USUAL_TAIL <= int((exchange.range_header or "").removeprefix("bytes=-")) < USUAL_TAIL + 256
            for exchange in server.log
            if exchange.path in files[:1]
        )
        server.reset()
        assert sum(len(outcome.fetched) for outcome in cat.harvest("all", subsets="all")) == 0
        assert not server.log


def test_only_errors_of_the_whole_source_end_a_harvest() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, SourceError)]
    others = {each for each in classes if not issubclass(each, OF_ONE_FILE)}
    assert others == {SourceError, errors.Blocked, errors.SourceUnavailable}


def test_tail_length_follows_earlier_footers(mirror: Path, crawl: str, store: Store, footers: dict[str, bytes]) -> None:
    files = listed(mirror, crawl)
    with FaultServer(mirror) as server:
        run(server, store, crawl)
        store.delete("files", [files[0].path])
        server.reset()
        run(server, store, crawl)
        largest = max(len(footers[f.path]) for f in files if f.subset == files[0].subset)
        (exchange,) = server.log
        assert exchange.body_bytes_sent < max(2 * largest, 16 << 10)


def test_footer_longer_than_the_tail_takes_another_request(
    mirror: Path, crawl: str, store: Store, footers: dict[str, bytes]
) -> None:
    file = listed(mirror, crawl)[0]
    real = (mirror / file.path).read_bytes()
    # A footer may have fields that are newer than its readers; this one has a long one.
    footer = footers[file.path][:-1] + encode_struct([(100, BINARY, b"x" * 3 * USUAL_TAIL)])
    data_end = len(real) - 8 - len(footers[file.path])
    content = real[:data_end] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    manifest = manifest_path(crawl)
    files = {file.path: content, manifest: gzip.compress(file.path.encode())}
    with FaultServer(files) as server:
        run(server, store, crawl)
        assert [exchange.path for exchange in server.log] == [manifest, file.path, file.path]
        assert sum(e.body_bytes_sent for e in server.log[1:]) == len(footer) + 8
    assert stored(store) == {file.path: footer}


@contextmanager
def killed(source: Path, home: Path, at: int, *words: str) -> Iterator[Command]:
    """Kill a command when its server gets a request; yield the command line, for the same server."""
    started: list[Forked] = []

    def kill(request: Request) -> None:
        if request.number == at:
            started[0].kill()

    with FaultServer(source, script=kill) as server:
        command = Command(home / "data", server.url, home)
        started.append(command.start(*words))
        started[0].communicate(timeout=60)
        assert started[0].returncode == -signal.SIGKILL
        yield command


def test_continues_after_a_kill(mirror: Path, crawl: str, tmp_path: Path, footers: dict[str, bytes]) -> None:
    words = ["harvest", "--crawl", crawl, "--subset", "all"]
    with killed(mirror, tmp_path, 3, *words) as command:
        assert command(*words).status == 0
        status = command("status", "--json").json()
    expected = {path: data for path, data in footers.items() if f"crawl={crawl}/" in path}
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        assert stored(store) == expected
    assert sum(row["files_harvested"] for row in status["coverage"]) == len(expected)


def test_ctrl_c_keeps_stored_files(mirror: Path, crawl: str, tmp_path: Path) -> None:
    files = len(listed(mirror, crawl))
    started: list[Forked] = []

    def interrupt(request: Request) -> Fault | None:
        if request.number < files + 1:  # the list of crawls, the manifest, and all files but one
            return None
        started[0].send_signal(signal.SIGINT)
        return Fault(Kind.SILENT, hold=30.0)

    with FaultServer(mirror, script=interrupt) as server:
        command = Command(tmp_path / "data", server.url, tmp_path)
        # One at a time, so that all but the last two are stored when the signal arrives.
        started.append(command.start("harvest", "--crawl", crawl, "--subset", "all", CATALOGUE_CONNECTIONS="1"))
        _, err = started[0].communicate(timeout=60)
        assert started[0].returncode == 130, err
        assert b"same command continues it" in err
        assert b"Traceback" not in err
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        assert files - 3 <= len(stored(store)) < files


def test_failing_file_is_reported_and_others_continue(mirror: Path, crawl: str, tmp_path: Path) -> None:
    missing, *rest = listed(mirror, crawl)
    lost = {missing.path}
    with FaultServer(mirror, script=lambda each: Fault(Kind.NOT_FOUND) if each.path in lost else None) as server:
        command = Command(tmp_path / "data", server.url, tmp_path)
        ran = command("harvest", "--crawl", crawl, "--subset", "all", "--json")
        assert ran.status == 1
        (outcome,) = ran.json_lines()
        assert list(outcome["failed"]) == [missing.path]
        assert outcome["harvested"] == len(rest)
        status = command("status", "--json").json()
        assert [failure["path"] for failure in status["failures"]] == [missing.path]
        words = ["*.example.com", "--index", "columnar", "--subset", "all", "--crawl", crawl, "--format", "jsonl"]
        requested = command("query", *words)
        assert requested.status == 1
        assert "may be incomplete" in requested.err
        lost.clear()
        assert command("harvest", "--crawl", crawl, "--subset", "all").status == 0
        lost.add(missing.path)
        assert command("harvest", "--crawl", crawl, "--subset", "all", "--refresh").status == 1
    with catalogue.open(command.data, settings=Settings(source=str(mirror))) as cat:
        assert cat.failures().empty  # the stored footers still answer
        assert cat.captures("*.example.com", crawls=crawl, index="columnar").complete


def test_reports_invalid_footers(mirror: Path, crawl: str, store: Store) -> None:
    files, served = listed(mirror, crawl), served_files(mirror, crawl)
    victims = [file.path for file in files[:6]]
    served[victims[0]] = served[victims[0]][:-4] + b"PARE"
    served[victims[1]] = served[victims[1]][:-4] + b"HTML"
    served[victims[2]] = served[victims[2]][:-8] + b"\xff\xff\xff\x7fPAR1"
    served[victims[3]] = served[victims[3]][:-400] + b"\xff" * 392 + served[victims[3]][-8:]
    served[victims[4]] = b""
    served[victims[5]] = served[victims[5]].replace(b"url_surtkey", b"url_surtkex")
    with FaultServer(served) as server:
        outcome = run(server, store, crawl)
    assert set(outcome.failures) == set(victims)
    assert all(path in reason for path, reason in outcome.failures.items())
    assert "encrypted" in outcome.failures[victims[0]]
    assert "has no column url_surtkey" in outcome.failures[victims[5]]  # no query could find its rows
    assert len(stored(store)) == len(files) - len(victims)
    assert set(store.keys("failures")) == set(victims)


def test_rejects_crawls_without_columnar_index(mirror: Path, store: Store) -> None:
    with FaultServer(mirror) as server:
        with pytest.raises(UnknownCrawl, match="no columnar index"):
            run(server, store, "CC-MAIN-2012")
        assert not server.log
        with pytest.raises(UnknownCrawl, match="no columnar index of CC-MAIN-2019-99"):
            run(server, store, "CC-MAIN-2019-99")


def test_refresh_updates_changed_and_removes_unlisted_files(
    mirror: Path, crawl: str, tmp_path: Path, footers: dict[str, bytes]
) -> None:
    files, served = listed(mirror, crawl), served_files(mirror, crawl)
    first, second = [file.path for file in files if file.subset == "warc"][:2]
    with FaultServer(served) as server, catalogue.open(tmp_path, settings=Settings(source=server.url)) as cat:
        cat.harvest(crawl, subsets="all")
        served[first], served[second] = served[second], served[first]
        found = cat.captures("*", columns=["url"], subsets="all")
        with pytest.raises(catalogue.SourceError, match=f"harvest --crawl {crawl} --refresh"):
            found.to_arrow()
        cat.harvest(crawl, subsets="all", refresh=True)
        assert stored(Store(tmp_path / "footers.sqlite"))[first] == footers[second]
        twice = cat.captures("*", columns=["url"], subsets="all").to_arrow()
        assert twice.num_rows == sum(cat.files()["num_rows"])
        del served[files[0].path]
        served[manifest_path(crawl)] = gzip.compress("\n".join(file.path for file in files[1:]).encode())
        subset = files[0].subset
        with pytest.raises(catalogue.SourceError, match=f"harvest --crawl {crawl} --subset {subset} --refresh"):
            cat.captures("*", columns=["fetch_time"], subsets="all").to_arrow()  # URLs may be in the cache
        cat.harvest(crawl, subsets=subset, refresh=True)
        assert set(cat.files()["path"]) == {file.path for file in files[1:]}
        assert cat.captures("*", columns=["url"]).complete


def test_listed_crawl_without_an_index_is_a_failure(mirror: Path, crawl: str, tmp_path: Path) -> None:
    served = served_files(mirror, crawl)
    served["collinfo.json"] = b'[{"id": "CC-MAIN-2099-01"}, {"id": "%s"}]' % crawl.encode()
    with FaultServer(served) as server:
        command = Command(tmp_path / "data", server.url, tmp_path)
        ran = command("harvest", "--crawl", "all", "--json", "--yes")
        newest, other = ran.json_lines()
        assert (ran.status, newest["harvested"], other["crawl"], other["failed"]) == (1, 0, crawl, {})
        assert "may not be published yet" in newest["failed"]["CC-MAIN-2099-01"]
        assert "may not be published yet" in command("harvest", "--crawl", "latest", "--quiet").err
        assert command("harvest", "--crawl", "CC-MAIN-2099-01").status == 2
