"""Reading the end of a file of unknown size takes as few requests as the host allows."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from catalogue.errors import NotParquet, RangeIgnored
from catalogue.source.http import HttpSource
from catalogue.source.open import FolderSource
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource, get_tail
from tests.support.clocks import FakeClock
from tests.support.fault_kinds import WITHOUT_SIZE
from tests.support.faults import Fault, FaultServer, Kind, Request, Script, first, on_suffixes, only
from tests.support.sources import DATA

FILES = {f"{number}.parquet": DATA[number : number + 20_000] for number in range(8)}
FILES |= {"short": b"12345", "one": b"1", "empty": b""}
PATHS = [path for path in FILES if path.endswith(".parquet")]
TAIL = 5000
SUFFIX, FIRST, EXPLICIT = f"bytes=-{TAIL}", "bytes=0-1", "bytes=15000-19999"


ignores_suffixes = on_suffixes(Kind.WHOLE_FILE)
"""CloudFront may ignore ranges (docs.aws.amazon.com/AmazonCloudFront, "Range GETs")."""
refuses_suffixes = on_suffixes(Fault(Kind.UNSATISFIABLE, variant=WITHOUT_SIZE))


@contextmanager
def over(server: FaultServer, file: Path | None = None) -> Iterator[PoliteSource]:
    limiter = Limiter(Policy(), clock=FakeClock(), file=file)
    with closing(PoliteSource(HttpSource(server.url, user_agent="test", connections=1), limiter)) as source:
        yield source


def ranges(server: FaultServer) -> list[str | None]:
    """Return the ranges requested since the last call."""
    found = [exchange.range_header for exchange in server.settle()]
    server.reset()
    return found


def check(source: PoliteSource, path: str, length: int = TAIL) -> None:
    tail = get_tail(source, path, length)
    data = FILES[path]
    assert tail.body == data[-length:]
    assert (tail.start, tail.total_size) == (max(0, len(data) - length), len(data))


@pytest.mark.parametrize("script", [None, ignores_suffixes])
@pytest.mark.parametrize("path", ["short", "one"])
def test_reads_short_files_completely(path: str, script: Script | None) -> None:
    with FaultServer(FILES, script=script) as server, over(server) as source:
        check(source, path)
        assert len(ranges(server)) == 1  # even a complete file is not longer than the suffix
        check(source, path, 1)


@pytest.mark.parametrize("script", [None, ignores_suffixes])
def test_empty_file_is_not_parquet(script: Script | None) -> None:
    with FaultServer(FILES, script=script) as server, over(server) as source:
        for _ in range(2):
            with pytest.raises(NotParquet, match="empty is not a Parquet file: it is empty"):
                get_tail(source, "empty", TAIL)
        assert source.requests == len(ranges(server)) == 2


def test_uses_explicit_ranges_after_a_suffix_was_ignored() -> None:
    with FaultServer(FILES, script=ignores_suffixes) as server, over(server) as source:
        check(source, PATHS[0])
        *unknown, pinned = [exchange.headers.get("if-match") for exchange in server.settle()]
        assert (unknown, bool(pinned)) == ([None, None], True)
        assert ranges(server) == [SUFFIX, FIRST, EXPLICIT]
        for path in PATHS[1:]:
            check(source, path)
        assert ranges(server) == [FIRST, EXPLICIT] * (len(PATHS) - 1)
        assert not source.honoured_suffixes


def test_processes_share_that_suffixes_are_ignored(tmp_path: Path) -> None:
    with FaultServer(FILES, script=ignores_suffixes) as server:
        with over(server, tmp_path / "host.json") as source:
            check(source, PATHS[0])
        ranges(server)
        with over(server, tmp_path / "host.json") as source:
            check(source, PATHS[1])
        assert ranges(server) == [FIRST, EXPLICIT]


@pytest.mark.parametrize("place", [0, 3])
def test_one_file_does_not_decide_for_its_host(place: int) -> None:
    """Common Crawl at times ignores all ranges of some files."""
    odd = PATHS[place]
    with FaultServer(FILES, script=only(odd, Kind.WHOLE_FILE)) as server, over(server) as source:
        for path in PATHS:
            if path == odd:
                hint = "" if place else "; use a server that honours ranges, or name the folder itself as the source$"
                with pytest.raises(RangeIgnored, match=f"{odd}: the complete file was sent instead of a range{hint}"):
                    get_tail(source, path, TAIL)
            else:
                check(source, path)
        requested = ranges(server)
        assert requested.count(SUFFIX) == len(PATHS)
        assert requested.count(FIRST) == len(requested) - len(PATHS) == (4 if place else Policy().never_honoured)
        assert not source.limiter.state.ignores_suffixes


def test_one_ignored_suffix_does_not_change_a_host_that_honours_them() -> None:
    with (
        FaultServer(FILES, script=lambda request: Fault(Kind.WHOLE_FILE) if request.number == 1 else None) as server,
        over(server) as source,
    ):
        for path in PATHS:
            check(source, path)
        assert ranges(server) == [SUFFIX, SUFFIX, FIRST, EXPLICIT] + [SUFFIX] * (len(PATHS) - 2)
        assert source.honoured_suffixes
        assert not source.limiter.state.ignores_suffixes


@pytest.mark.parametrize("kind", [Kind.HTML_200, Kind.XML_IN_200])
@pytest.mark.parametrize("variant", [0, 1])
def test_html_with_200_does_not_count_as_ignored_suffix(kind: Kind, variant: int) -> None:
    with FaultServer(FILES, script=first(1, Fault(kind, variant))) as server, over(server) as source:
        check(source, PATHS[0])
        assert ranges(server) == [SUFFIX, SUFFIX]


def test_file_that_changes_between_two_requests_is_requested_again() -> None:
    files = dict(FILES)
    path = PATHS[0]

    def script(request: Request) -> Fault | None:
        if request.number == 2:
            files[path] = FILES[PATHS[1]]
        return ignores_suffixes(request)

    with FaultServer(files, script=script) as server, over(server) as source:
        assert get_tail(source, path, TAIL).body == FILES[PATHS[1]][-TAIL:]
        assert ranges(server) == [SUFFIX, FIRST, EXPLICIT, EXPLICIT, FIRST, EXPLICIT]


def refuses_long_suffixes(request: Request) -> Fault | None:
    length = request.headers["range"].partition("=-")[2]
    return Fault(Kind.UNSATISFIABLE) if length and int(length) > len(FILES[request.path]) else None


@pytest.mark.parametrize("kind", [Kind.OTHER_RANGE, Kind.SERVER_ERROR])
def test_replaces_suffixes_that_are_computed_wrongly(kind: Kind) -> None:
    with FaultServer(FILES, script=on_suffixes(kind)) as server, over(server) as source:
        check(source, PATHS[0])
        assert ranges(server) == [*[SUFFIX] * 3, FIRST, EXPLICIT]


def test_replaces_suffixes_that_are_refused() -> None:
    with FaultServer(FILES, script=refuses_long_suffixes) as server, over(server) as source:
        check(source, "short")
        assert ranges(server) == [SUFFIX, "bytes=0-4"]
        check(source, PATHS[0])
        assert ranges(server) == [SUFFIX]
    with FaultServer(FILES, script=refuses_suffixes) as server, over(server) as source:
        check(source, "short")
        assert ranges(server) == [SUFFIX, FIRST, "bytes=0-4"]
        check(source, PATHS[0])
        assert ranges(server) == [FIRST, EXPLICIT]


def test_reads_tails_of_a_folder(tmp_path: Path) -> None:
    for path, data in FILES.items():
        (tmp_path / path).write_bytes(data)
    source = PoliteSource(FolderSource(tmp_path), Limiter(Policy(), clock=FakeClock()))
    for path in (*PATHS, "short", "one"):
        check(source, path)
    with pytest.raises(NotParquet):
        get_tail(source, "empty", TAIL)
    assert source.requests == len(FILES)
