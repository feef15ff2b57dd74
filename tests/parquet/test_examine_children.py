"""What children that look into footers are kept from, and what becomes of them."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import pytest

from catalogue.errors import BadFooter
from catalogue.examine import Examiner
from catalogue.parquet.thrift import BINARY, I32, STRUCT
from catalogue.supervised import Children, end_spare
from tests.support.examiners import (
    FACTS,
    SMALL,
    child_of,
    children,
    examine,
    leaving_no_child,
    listed,
    one_examiner,
    with_unknown_field,
)
from tests.support.footers import made, small_file

no_child_is_left = pytest.fixture(autouse=True)(leaving_no_child)
one = pytest.fixture(one_examiner)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells of other processes")


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
    (left,) = children() - before
    assert examine(examiner, SMALL) == FACTS
    assert children() - before == {left}
    examiner.close()
    assert children() - before == {left}


def test_a_child_waits_for_who_would_start_another(one: Examiner) -> None:
    """Whether the work was done or failed; and no more than one."""
    child = child_of(one)
    before = children()
    examiner = Examiner(children=1)

    def fail() -> None:
        with examiner:
            examine(examiner, SMALL)
            raise _Interrupted

    with pytest.raises(_Interrupted):
        fail()
    (other,) = children() - before
    one.close()
    assert children() - before == {other}
    assert child not in children()
    with Examiner(children=1) as third:
        assert examine(third, SMALL) == FACTS
        assert children() - before == {other}


def test_one_that_has_waited_too_long_ends_and_is_replaced() -> None:
    question = b"%s\n%s" % (json.dumps([SMALL.file_size, "url_surtkey", False]).encode(), SMALL.footer)
    before = children()
    asked = Children("catalogue.parquet.summary:answer", count=1, patience=1)
    answer = asked.ask(question)
    for _ in range(2):  # while it is theirs, and while it is nobody's
        (child,) = children() - before
        with suppress(ProcessLookupError):  # it has ended already
            ended = os.pidfd_open(child)
            try:
                assert select.select([ended], [], [], 30)[0] == [ended]
            finally:
                os.close(ended)
        assert asked.ask(question) == answer
        assert child not in children()
        asked.close()


def _ask_a_child_of_our_own() -> None:
    with Examiner(children=1) as examiner:
        child_of(examiner)
    end_spare()


def test_a_process_that_was_forked_asks_no_child_of_its_parent() -> None:
    with Examiner(children=1) as examiner:
        child = child_of(examiner)
    forked = get_context("fork").Process(target=_ask_a_child_of_our_own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the threads that there may be
        forked.start()
    forked.join()
    assert forked.exitcode == 0
    with Examiner(children=1) as examiner:
        assert examine(examiner, SMALL) == FACTS
    assert child in children()


PARENT = """
import os, sys
from pathlib import Path
from catalogue.examine import Examiner
from catalogue.supervised import Children, end_spare

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
