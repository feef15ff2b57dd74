"""Children that look into footers: what they say, what they are kept from, and what becomes of them."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType

import pyarrow as pa
import pytest

from catalogue.errors import BadFooter, Encrypted
from catalogue.examine import Examiner, FileFacts, file_facts
from catalogue.footer import MAX_FOOTER, Order, decode_footer
from catalogue.thrift import BINARY, I32, I64, LIST, STRUCT
from tests.footers import Items, Made, confused, made, scrambled, small_file, write
from tests.mirrors import index_paths, one_of_each_crawl, raw_footer, read_footer

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells of other processes")

SMALL = made(small_file())
FACTS = file_facts(decode_footer(SMALL.footer, SMALL.file_size))


def children() -> set[int]:
    """The processes that this one started and that did not end yet."""
    if Path("/proc/self/status").exists():
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:  # ended meanwhile
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(folder.name))
        return found
    listed = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    return set(map(int, listed.stdout.split()))


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


@pytest.fixture(scope="module")
def shared() -> Iterator[Examiner]:
    """An examiner whose child nobody harms."""
    with Examiner(children=1, seconds=30) as examiner:
        examine(examiner, SMALL)
        yield examiner


@pytest.fixture
def one() -> Iterator[Examiner]:
    """An examiner with one child."""
    with Examiner(children=1, seconds=30) as examiner:
        yield examiner


def child_of(examiner: Examiner) -> int:
    """The only child of an examiner, started if need be."""
    before = children()
    assert examine(examiner, SMALL) == FACTS
    started = children() - before
    assert len(started) == 1
    return started.pop()


def examine(examiner: Examiner, footer: Made) -> FileFacts:
    return examiner.examine(footer.footer, footer.file_size)


# What they say


def test_facts_are_those_of_this_process(mirror: Path) -> None:
    with Examiner() as examiner:
        for path in index_paths(mirror):
            data = path.read_bytes()
            for chunks in (False, True):
                found = examiner.examine(raw_footer(data), len(data), column_chunks=chunks)
                assert found == file_facts(read_footer(data), column_chunks=chunks)
                assert bool(found.column_chunks) == chunks


def test_what_is_picked() -> None:
    footer = read_footer(small_file(compression="zstd"))
    facts = file_facts(footer, column_chunks=True)
    assert (facts.num_rows, facts.codec, facts.utc_times, facts.has_page_index) == (4, "ZSTD", True, True)
    assert facts.created_by == footer.created_by
    assert facts.column_names == ("url_surtkey", "fetch_time", "fetch_status")
    assert [(group.ordinal, group.num_rows) for group in facts.row_groups] == [(0, 2), (1, 2)]
    bounds = [(group.min_key, group.max_key, group.bounds_from) for group in facts.row_groups]
    assert bounds == [("com,example)/", "com,example)/a", "footer"), ("org,example)/", "org,example)/b", "footer")]
    sizes = [(group.total_byte_size, group.total_compressed_size) for group in facts.row_groups]
    assert sizes == [(group.total_byte_size, group.total_compressed_size) for group in footer.row_groups]
    assert [(chunk.row_group, chunk.column_name, chunk.physical_type) for chunk in facts.column_chunks[2:4]] == [
        (0, "fetch_status", "INT32"),
        (1, "url_surtkey", "BYTE_ARRAY"),
    ]
    key, status = facts.column_chunks[3], facts.column_chunks[5]
    assert (key.codec, key.num_values, key.null_count, key.has_page_index) == ("ZSTD", 2, 0, True)
    assert (key.min, key.max) == ("org,example)/", "org,example)/b")
    assert (status.min, status.max, status.null_count) == (None, None, 1)
    held = footer.row_groups[1].chunks["url_surtkey"]
    assert (key.file_offset, key.total_compressed_size) == (held.range.start, len(held.range))
    assert key.total_uncompressed_size == held.total_uncompressed_size


def test_where_bounds_come_from() -> None:
    footer = read_footer(small_file())
    group = footer.row_groups[0]
    key = group.chunks["url_surtkey"]
    assert key.bounds
    signed = replace(key, bounds=replace(key.bounds, order=Order.SIGNED))
    groups = [replace(group, chunks={"url_surtkey": chunk}) for chunk in (key, signed, replace(key, bounds=None))]
    groups.append(replace(group, chunks={}))
    facts = file_facts(replace(footer, row_groups=tuple(groups)))
    assert [group.bounds_from for group in facts.row_groups] == ["footer", "footer (signed)", "missing", "missing"]
    assert facts.row_groups[2].min_key is None


def test_a_page_index_counts_if_every_row_group_has_both_halves_of_it() -> None:
    footer = read_footer(small_file())
    first, second = footer.row_groups
    assert file_facts(footer).has_page_index
    key = second.chunks["url_surtkey"]
    for lacking in (replace(key, column_index=None), replace(key, offset_index=None)):
        poorer = replace(second, chunks=second.chunks | {"url_surtkey": lacking})
        assert not file_facts(replace(footer, row_groups=(first, poorer))).has_page_index
    assert not file_facts(replace(footer, row_groups=())).has_page_index


def test_pyarrow_is_asked(shared: Examiner) -> None:
    """We have no use for a format version, but it is required."""
    footer = made(small_file())
    del footer.fields[1]
    assert decode_footer(footer.footer, footer.file_size).num_rows == 4
    with pytest.raises(BadFooter, match="pyarrow cannot decode the footer: "):
        examine(shared, footer)


def test_we_are_asked(shared: Examiner) -> None:
    """pyarrow does not mind that the rows do not add up."""
    footer = made(small_file())
    footer.fields[3] = (I64, 5)
    with pytest.raises(BadFooter, match="the row groups' rows do not add up"):
        examine(shared, footer)


def test_keys_that_are_no_text(one: Examiner) -> None:
    """Bounds that are no text ended the child that was to show them as one."""
    child = child_of(one)
    data = write(pa.table({"url_surtkey": pa.array([200, -5], pa.int64())}))
    with pytest.raises(BadFooter, match="the column url_surtkey holds int64 and not text"):
        one.examine(raw_footer(data), len(data))
    assert child in children()


def test_encrypted_columns(one: Examiner) -> None:
    """pyarrow ends the process that asks it about such a column."""
    child = child_of(one)
    footer = made(small_file())
    footer.chunk(0, 0)[8] = (STRUCT, {2: (STRUCT, {1: (LIST, Items(BINARY, [b"url_surtkey"]))})})
    with pytest.raises(Encrypted, match="encrypted"):
        examine(one, footer)
    assert child in children()


@pytest.mark.parametrize("codec", [3, 8, 9, 99, 255])
def test_codecs_to_come(shared: Examiner, codec: int) -> None:
    """pyarrow's accessors end the process for some of them."""
    footer = made(small_file(compression="none"))
    footer.meta(1, 0)[4] = (I32, codec)
    assert examine(shared, footer).codec == f"UNCOMPRESSED+{'LZO' if codec == 3 else f'UNKNOWN({codec})'}"


# Hostile footers


@pytest.mark.parametrize("damage", [scrambled, confused])
def test_every_damaged_footer_gets_a_verdict(mirror: Path, damage: Callable[[bytes, Random], bytes]) -> None:
    """The same as in this process, unless pyarrow objects."""
    rng = Random(f"examine {damage.__name__}")
    seeds = [SMALL, *(made(path.read_bytes(), row_groups=1) for path in one_of_each_crawl(mirror))]
    footers = [damage((SMALL if number % 4 else rng.choice(seeds)).footer, rng) for number in range(150)]
    size = 1 << 30

    def here(footer: bytes) -> FileFacts | type[Exception]:
        try:
            return file_facts(decode_footer(footer, size), column_chunks=True)
        except (BadFooter, Encrypted) as error:
            return type(error)

    with Examiner(seconds=30) as examiner, examiner.executor() as executor:

        def there(footer: bytes) -> FileFacts | Exception:
            try:
                return examiner.examine(footer, size, column_chunks=True)
            except (BadFooter, Encrypted) as error:
                return error

        verdicts = [*executor.map(there, footers)]
    expected = [here(footer) for footer in footers]
    accepted = 0
    for verdict, ours in zip(verdicts, expected, strict=True):
        if isinstance(verdict, FileFacts):
            accepted += 1
            assert verdict == ours
        assert "died" not in str(verdict)
    assert 5 < accepted < 120


def wide(columns: int) -> bytes:
    """A schema of that many leaves and one row group that has them all, in which every number is small."""
    footer = made(small_file(), row_groups=1)
    footer.fields[2][1].values[1:] = [{1: (I32, 1), 4: (BINARY, b"%d" % number)} for number in range(columns)]
    footer.element(0)[5] = (I32, columns)
    chunk = footer.chunk(0, 1)
    footer.group(0)[1] = (LIST, Items(STRUCT, [chunk] * columns))
    return footer.footer


def nested(depth: int) -> bytes:
    footer = made(small_file())
    footer.fields[2][1].values[1:1] = [{4: (BINARY, b"g"), 5: (I32, 1)}] * depth
    return footer.footer


def with_unknown_field(kind: int, value: bytes) -> bytes:
    """A footer with one more field, number 100."""
    return SMALL.footer[:-1] + bytes([kind]) + b"\xc8\x01" + value + b"\x00"


def listed(kind: int, element: bytes) -> bytes:
    """The next field of a struct: a list of 20,000, which is the limit."""
    return b"\x19" + bytes([0xF0 | kind]) + b"\xa0\x9c\x01" + element * 20_000


BOMBS: dict[str, Callable[[], bytes]] = {
    "chunks and leaves beyond the limit": lambda: wide(20_001),
    "chunks and leaves at the limit": lambda: wide(20_000)[:MAX_FOOTER],
    "groups within each other": lambda: nested(15_000),
    "a list of two thousand millions": lambda: with_unknown_field(LIST, b"\xf5\xff\xff\xff\xff\x07"),
    "a string of two thousand millions": lambda: with_unknown_field(BINARY, b"\xff\xff\xff\xff\x07"),
    "lists within each other": lambda: with_unknown_field(LIST, b"\x19" * MAX_FOOTER),
    "structs of a boolean": lambda: with_unknown_field(STRUCT, listed(STRUCT, b"\x11\x00") * 100),
    "nothing": lambda: b"",
    "zeros": lambda: bytes(MAX_FOOTER),
}


def test_bombs_are_refused_and_the_child_lives() -> None:
    """In no more than a GiB over what it takes to start."""
    with Examiner(children=1, seconds=20) as examiner:
        child = child_of(examiner)
        for name, bomb in BOMBS.items():
            with pytest.raises(BadFooter):
                examiner.examine(bomb(), 1 << 30)
            assert child in children(), name
        if Path("/proc/self/status").exists():
            [peak] = (line for line in Path(f"/proc/{child}/status").read_text().splitlines() if "VmHWM" in line)
            assert int(peak.split()[1]) < 1 << 20
        assert examine(examiner, SMALL) == FACTS


# What they are kept from


@needs_proc
def test_a_child_sees_no_credentials(monkeypatch: pytest.MonkeyPatch, one: Examiner) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "CANARY", "PYTHONPATH"):
        monkeypatch.setenv(name, "canary-3f9a")
    environment = Path(f"/proc/{child_of(one)}/environ").read_bytes()
    assert b"canary-3f9a" not in environment
    assert {entry.partition(b"=")[0] for entry in environment.split(b"\0")} - {b""} == {
        b"ARROW_DEFAULT_MEMORY_POOL",
        b"PATH",
    }


@needs_proc
def test_a_child_is_limited(one: Examiner) -> None:
    limits = Path(f"/proc/{child_of(one)}/limits").read_text().splitlines()
    found = {line[:25].strip(): line[25:].split()[0] for line in limits}
    assert found["Max core file size"] == "0"
    assert found["Max open files"] == "16"
    assert found["Max address space"].isdecimal()
    assert int(found["Max address space"]) < 8 << 30


@needs_proc
def test_a_child_holds_no_file_of_ours(tmp_path: Path, one: Examiner) -> None:
    with (tmp_path / "ours").open("w") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003
        child = child_of(one)
        held = {str(link.readlink()) for link in Path(f"/proc/{child}/fd").iterdir()}
    assert held
    assert all("pipe:" in target or target == os.devnull for target in held)


# What becomes of them


def test_a_child_that_was_killed_is_replaced(one: Examiner) -> None:
    """Whoever killed it while it was at work: it is no verdict on the footer."""
    before = children()
    child = child_of(one)
    os.kill(child, signal.SIGSTOP)  # it takes the question and does not answer
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(examine, one, SMALL)
        os.kill(child, signal.SIGKILL)
        assert answer.result() == FACTS
    assert child not in children()
    assert len(children() - before) == 1


def test_a_child_that_hangs_is_replaced() -> None:
    with Examiner(children=1, seconds=0.3) as examiner:
        child = child_of(examiner)
        os.kill(child, signal.SIGSTOP)
        assert examine(examiner, SMALL) == FACTS
        assert child not in children()


def test_a_footer_that_no_child_survives_is_bad() -> None:
    """Here because it takes us too long; pyarrow passes over what it does not know."""
    slow = with_unknown_field(STRUCT, listed(I32, b"\x02") * 74 + b"\x00")
    with Examiner(children=1, seconds=0.2) as examiner:
        child = child_of(examiner)
        with pytest.raises(BadFooter, match=r"the footer cannot be decoded: its parser took over 0\.2 s"):
            examiner.examine(slow, 1 << 30)
        assert child not in children()
        assert examine(examiner, SMALL) == FACTS


class _Interrupted(BaseException):
    pass


def test_an_answer_that_nobody_waited_for_is_not_given_to_the_next_question(one: Examiner) -> None:
    """As when a user presses Ctrl-C in a notebook, and asks again."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise _Interrupted

    child = child_of(one)
    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main
    os.kill(child, signal.SIGSTOP)
    alarm = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGUSR1])
    try:
        alarm.start()
        with pytest.raises(_Interrupted):
            examine(one, made(small_file(row_group_size=1)))
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, before)
        if child in children():
            os.kill(child, signal.SIGCONT)
    assert examine(one, SMALL) == FACTS


def test_many_threads_get_each_their_own_answer() -> None:
    footers = []
    for number in range(40):
        footer = made(small_file())
        footer.fields[6] = (BINARY, b"writer %d" % number)
        footers.append(footer)
    before = children()
    with Examiner(children=2, seconds=30) as examiner, ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(lambda footer: examine(examiner, footer), footers * 5)]
        assert len(children() - before) <= 2
    assert [facts.created_by for facts in answers] == [f"writer {number}" for number in range(40)] * 5


def test_children_are_started_when_needed() -> None:
    before = children()
    with Examiner(children=3, seconds=30) as examiner:
        assert children() == before
        for _ in range(20):
            examine(examiner, SMALL)
        assert len(children() - before) == 1


def test_another_child_is_started_when_it_is_worth_its_start() -> None:
    before = children()
    with Examiner(children=2, seconds=30) as examiner, ThreadPoolExecutor(8) as executor:
        assert list(executor.map(lambda _: examine(examiner, SMALL), range(16))) == [FACTS] * 16
        (first,) = children() - before
        os.kill(first, signal.SIGSTOP)
        asked = [executor.submit(examine, examiner, SMALL) for _ in range(8)]
        done, _ = wait(asked, timeout=20, return_when=FIRST_COMPLETED)
        assert done
        assert len(children() - before) == 2
        os.kill(first, signal.SIGCONT)
        assert [each.result() for each in asked] == [FACTS] * 8


def test_closing_waits_for_what_is_under_way_and_can_be_done_twice() -> None:
    before = children()
    examiner = Examiner(children=2, seconds=30)
    with examiner.executor() as executor:
        answers = [executor.submit(examine, examiner, SMALL) for _ in range(10)]
        executor.submit(examiner.close).result()
        assert all(answer.result() == FACTS for answer in answers)
    assert children() == before
    assert examine(examiner, SMALL) == FACTS
    assert children() == before
    examiner.close()


def test_children_end_when_the_work_fails() -> None:
    before = children()
    examiner = Examiner(children=1)

    def fail() -> None:
        with examiner:
            examine(examiner, SMALL)
            raise _Interrupted

    with pytest.raises(_Interrupted):
        fail()
    assert children() == before


PARENT = """
import os, sys
from pathlib import Path
from catalogue.examine import Examiner

examiner = Examiner(children=1)
examiner.examine(sys.stdin.buffer.read(), 1 << 20)
[child] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()  # those of the thread that asked
print(child, flush=True)
os.kill(os.getpid(), 9)
"""


@needs_proc
def test_children_end_with_their_parent() -> None:
    """However it ended: nothing more can come through their pipe."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(SMALL.footer)
    assert process.returncode == -signal.SIGKILL
    with suppress(ProcessLookupError):  # it has ended already
        child = os.pidfd_open(int(out))
        try:
            assert select.select([child], [], [], 30)[0] == [child]
        finally:
            os.close(child)
