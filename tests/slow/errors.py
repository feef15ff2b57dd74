"""I/O errors and a full disk at the n-th call that changes a file, in every command that writes."""

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.slow.disk import PATIENCE, Entry, Fault, full
from tests.slow.writers import WRITERS, World, Writer, world

_DISK_FAILED = 74
_CAUSES = (
    "Input/output error",
    "disk I/O error",
    "No space left on device",
    "disk is full",
    "unable to open database",
    "a readonly database",  # SQLite tries to read what it cannot open to write
    "fsync failed",
    "error closing file",  # by pyarrow
)


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Try so many errors, of all that there could be; each run must end in time, say what is wrong, and be mendable."""
    with world(folder) as made:
        return tried(made, count, seed)


def tried(made: World, count: int, seed: int, names: Sequence[str] = tuple(WRITERS)) -> dict[str, object]:
    """Likewise in a world that is made already."""
    points = [point for name in names for point in _points(made, WRITERS[name])]
    random = Random(f"{seed} errors")
    chosen = points if count >= len(points) else _spread(points, count, random)
    hit = succeeded = 0
    for number, (writer, _, fault) in enumerate(chosen):
        try:
            ended = _try(made, writer, fault)
        except AssertionError as error:
            message = f"seed {seed}, {number}: {writer.name!r}, {fault}: {error}"
            raise AssertionError(message) from error
        hit += ended is not None
        succeeded += ended == 0
    return {"points": len(points), "runs": len(chosen), "hit": hit, "succeeded": succeeded, "stuck": 0, "wrong": 0}


_Point = tuple[Writer, str, Fault]


def _points(made: World, writer: Writer) -> list[_Point]:
    """Every fault there could be, and where it strikes."""
    found = []
    for entry in made.right(writer).entries:
        if entry.number:
            where = f"{writer.name} {entry.call.name} {_place(made, entry)}"
            found.append((writer, where, Fault("fail", entry.number, errno.EIO)))
            found.append((writer, where, Fault("failing", entry.number, errno.EIO)))
            if entry.takes_room:
                found.append((writer, where, full(entry.number)))
    return found


def _place(made: World, entry: Entry) -> str:
    """What kind of file it is."""
    name = entry.path.removeprefix(str(made.work))
    return name if name.startswith("/data/") else name.partition("/")[0] + name.rpartition(".")[2]


def _spread(points: Sequence[_Point], count: int, random: Random) -> list[_Point]:
    """Some points, of as many kinds as can be, the same number of each command."""
    kinds: dict[tuple[str, str, str], list[_Point]] = {}
    for point in points:
        kinds.setdefault((point[0].name, point[1], point[2].kind), []).append(point)
    of: dict[str, list[list[_Point]]] = {}
    for (name, *_), group in kinds.items():
        of.setdefault(name, []).append(random.sample(group, len(group)))
    for groups in of.values():
        random.shuffle(groups)
    chosen: list[_Point] = []
    turn = 0
    while len(chosen) < count:
        for groups in random.sample(list(of.values()), len(of)):
            left = [group for group in groups if group]
            if left and len(chosen) < count:
                chosen.append(left[turn % len(left)].pop())
        turn += 1
    return chosen


def _try(made: World, writer: Writer, fault: Fault) -> int | None:
    """Run a command with a fault; returns its exit status, None if the fault never struck."""
    made.right(writer)
    made.reset(made.state(writer.before))
    started = time.monotonic()
    ran, entries = made.run(writer, fault)
    took = time.monotonic() - started
    struck = [entry for entry in entries if entry.error]
    where = f"at {struck[0].call.name} of {struck[0].path}" if struck else "nowhere"
    said = [line for line in ran.err.splitlines() if line.startswith("catalogue: ")]
    try:
        assert took < PATIENCE, "it did not end"
        assert ran.status in {0, _DISK_FAILED}, "another exit status than of a disk that failed"
        if ran.status:
            assert "Traceback" not in ran.err
            assert said == ran.err.splitlines()[-1:], "not one sentence at the end"
            assert any(name in said[0] for name in (str(made.work), *writer.words[-1:])), "no path is named"
            assert any(cause in said[0] for cause in _CAUSES), "no cause is named"
            full = "No space left" in said[0] or "disk is full" in said[0]
            assert full == ("free there" in said[0]), "it does not say how much room there is"
        made.check(writer, done=ran.status == 0)
        made.check_again(writer)
    except AssertionError as error:
        message = f"{where}: {error}; it had come to {ran.status}: {ran.err}"
        raise AssertionError(message) from error
    return ran.status if struck else None
