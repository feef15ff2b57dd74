"""Commands that end early: by Ctrl-C, SIGTERM, a closed pipe, a limit, an error or a full disk, at random moments.

None is aborted or prints a traceback, and a signal prints one line. Signals go to all processes of a command, as a
terminal sends them.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count as numbers
from pathlib import Path
from random import Random

from catalogue.demo import LoopbackServer, write_miniature
from tests.support.commands import Command, wait_until
from tests.support.processes import handles_sigterm

MODERN, NEWEST, OLD = "CC-MAIN-2022-05", "CC-MAIN-2026-30", "CC-MAIN-2018-05"
_SITE = ("*.com", "--crawl", MODERN)
COMMANDS = {
    "query": ("query", *_SITE),
    "query blocks": ("query", *_SITE, "--index", "cdx"),
    "query into a file": ("query", *_SITE, "-o", "{new}.parquet"),
    "plan": ("plan", *_SITE),
    "get": ("get", "shop.example.com"),
    "fetch": ("fetch", *_SITE, "-o", "{new}.warc.gz", "--limit", "60"),
    "fetch texts": ("fetch", *_SITE, "--format", "text", "-o", "{new}.jsonl", "--limit", "60"),
    "harvest": ("harvest", "--crawl", NEWEST, "--subset", "all", "--data", "{new}"),
    "harvest pages": ("harvest", "--crawl", MODERN, "--pages", "--data", "{new}"),
    "harvest lists": ("harvest", "--crawl", MODERN, "--index", "cdx", "--data", "{new}"),
    "backfill": ("backfill", "--crawl", OLD, "--data", "{copy}"),
    "join": ("join", "urls.txt", "--crawl", MODERN, "-o", "{new}.parquet"),
    "sample": ("sample", "--crawl", MODERN, "-n", "40"),
    "export ducklake": ("export", "ducklake", "{new}.ducklake"),
    "export iceberg": ("export", "iceberg", "{new}"),
    "export snapshot": ("export", "snapshot", "{new}"),
    "pull": ("pull", "snapshot", "--data", "{new}"),
    "check": ("check",),
    "doctor": ("doctor",),
    "status": ("status",),
    "crawls": ("crawls",),
    "sql": ("sql", "select * from row_groups"),
    "forget": ("forget", "--crawl", MODERN, "--yes", "--data", "{copy}"),
    "old-index": ("old-index", "example.com"),
    "verify": ("verify", "found.receipt", "--read-source"),
    "demo": ("demo",),
    "serve": ("serve", "--port", "0", "--workers", "2"),
    "mcp": ("mcp",),
}
ENDLESS = {"serve", "mcp"}
_LIMITED = ("query", "query blocks", "fetch", "sample")
_CLOSED, _DISK_FAILED = 141, 74
_UNCLEAN = re.compile(
    r"Traceback|Exception ignored|terminate called|Fatal Python|internal error|Error:|stopped.*stopped", re.DOTALL
)
_LARGEST_FILE = 1000
"""Bytes that a command can write into a file if the disk is full."""
_SLOWEST = 60.0


@dataclass(frozen=True)
class Ends:
    folder: Path
    command: Command
    damaged: Path
    late: Path | None
    """A library with which native threads are late; see ``late.c``."""
    durations: dict[str, float]
    new: Iterator[int]

    def words(self, name: str) -> list[str]:
        new = self.folder / f"new-{next(self.new)}"
        if "{copy}" in COMMANDS[name]:
            shutil.copytree(self.command.data, self.folder / f"{new.name}-copy")
        return [word.format(new=new, copy=f"{new}-copy") for word in COMMANDS[name]]

    @contextmanager
    def started(
        self, words: list[str], *, late: bool = False, smallest_files: bool = False, **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        if late and self.late:
            environment["LD_PRELOAD"] = str(self.late)
        if smallest_files:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would read the truncated files later
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        environment |= {"PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(
            [sys.executable, "-m", "catalogue", *words],
            env=self.command.environment(**environment),
            cwd=self.folder,
            stdin=subprocess.PIPE if words == ["mcp"] else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=limit if smallest_files else None,  # noqa: PLW1509 - it makes one system call
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                for each in self.folder.glob("new-*"):
                    shutil.rmtree(each) if each.is_dir() else each.unlink()

    def by_signal(self, name: str, *, number: int, random: Random, late: bool) -> int:
        """Send a signal at a random moment after the command handles signals."""
        expected = 128 + number
        with self.started(self.words(name), late=late) as process:
            began = time.monotonic()
            wait_until(process, lambda: handles_sigterm(process.pid))
            delay = random.random() ** 2 * self.durations.get(name, 4.0)
            with suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            out, err = self.finished(process)
            if name not in ENDLESS and process.returncode in {0, 1}:
                self.durations[name] = time.monotonic() - began
        text = err.decode()
        check(name, process.returncode, text, {expected} | (set() if name in ENDLESS else {0, 1}), out)
        if process.returncode == expected:
            assert len(re.findall(r"^stopped", text, re.MULTILINE)) == 1, f"{name}: {text}"
            assert text.splitlines()[-1].startswith("stopped"), f"{name}: {text}"
        return process.returncode

    def finished(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Wait for the end; a process that hangs shows where."""
        try:
            return process.communicate(timeout=_SLOWEST)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            _, err = process.communicate()
            message = f"it hangs: {err.decode()}"
            raise AssertionError(message) from None

    def by_closed_pipe(self, name: str, *, late: bool) -> int:
        with self.started(self.words(name), late=late) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read().decode()
            process.wait(_SLOWEST)
        check(name, process.returncode, err, {0, 1, _CLOSED})
        return process.returncode

    def by_limit(self, name: str, *, late: bool) -> int:
        words = self.words(name)
        return self.status(
            name, [*words[:-1], "1"] if words[-1].isdigit() else [*words, "--limit", "1"], {0}, late=late
        )

    def by_error(self, *, late: bool) -> int:
        """Read a list of blocks that is invalid."""
        words = ["query", "https://shop.example.com/", "--crawl", MODERN, "--index", "cdx", "--data", "none"]
        return self.status("error", [*words, "--source", str(self.damaged)], {1}, late=late)

    def by_full_disk(self, name: str, *, late: bool) -> int:
        """No file may be larger than a few bytes."""
        return self.status(name, self.words(name), {0, 1, _DISK_FAILED}, late=late, smallest_files=True)

    def status(
        self, name: str, words: list[str], expected: set[int], *, late: bool, smallest_files: bool = False
    ) -> int:
        with self.started(words, late=late, smallest_files=smallest_files) as process:
            out, err = self.finished(process)
        check(name, process.returncode, err.decode(), expected, out)
        if process.returncode == _DISK_FAILED:
            assert err.decode().splitlines()[-1].startswith("catalogue: "), err
        return process.returncode


def check(name: str, status: int, text: str, expected: set[int], out: bytes = b"") -> None:
    assert status in expected, f"{name}: status {status}: {text or out.decode()[-500:]}"
    assert not _UNCLEAN.search(text), f"{name}: status {status}: {text}"


@contextmanager
def world(folder: Path) -> Iterator[Ends]:
    mirror, damaged = folder / "miniature", folder / "damaged"
    write_miniature(mirror, pages_per_crawl=1000)
    shutil.copytree(mirror, damaged)
    (listed,) = damaged.rglob(f"{MODERN}/indexes/cluster.idx")
    lines = listed.read_bytes().split(b"\n")
    fields = lines[len(lines) // 2].split(b"\t")
    fields[2] = b"%d" % (int(fields[2]) + 1)
    lines[len(lines) // 2] = b"\t".join(fields)
    listed.write_bytes(b"\n".join(lines))
    (folder / "urls.txt").write_text("".join(f"https://shop.example.com/{number}\n" for number in range(2000)))
    late = folder / "late.so"
    source = Path(__file__).with_name("late.c")
    if shutil.which("cc"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(late), str(source), "-ldl"], check=True)
    with LoopbackServer(mirror) as server:
        command = Command(folder / "data", server.url, folder)
        for words in (
            ("harvest", "--crawl", f"{MODERN},{OLD}", "--yes"),
            ("query", "shop.example.com", "--crawl", MODERN, "-o", "found.jsonl", "--receipt", "found.receipt"),
            ("export", "snapshot", "snapshot"),
        ):
            ran = command.again(*words)
            assert ran.status == 0, ran
        yield Ends(folder, command, damaged, late if late.exists() else None, {}, numbers())


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """End ``count`` commands early; every second one with native threads that are late."""
    random, ended = Random(f"{seed} ends"), Counter[str]()
    finite = [name for name in COMMANDS if name not in ENDLESS]
    with world(folder) as made:
        kinds: dict[str, tuple[Sequence[str], Callable[..., int]]] = {
            "Ctrl-C": ([*COMMANDS], partial(made.by_signal, number=signal.SIGINT, random=random)),
            "SIGTERM": ([*COMMANDS], partial(made.by_signal, number=signal.SIGTERM, random=random)),
            "closed pipe": (finite, made.by_closed_pipe),
            "limit": (_LIMITED, made.by_limit),
            "error": (finite, lambda _, *, late: made.by_error(late=late)),
            "full disk": (finite, made.by_full_disk),
        }
        for number in range(count):
            kind = random.choice([*kinds])
            names, end = kinds[kind]
            try:
                status = end(random.choice(names), late=number % 2 == 1)
            except AssertionError as error:
                raise AssertionError(f"{kind}, number {number} of seed {seed}: {error}") from error
            ended[f"{kind}: {status}"] += 1
    return dict(sorted(ended.items()))
