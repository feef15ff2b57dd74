"""Power cuts while commands write, as images of the disk that they might leave; see ``tests.slow.replay`` for how."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.slow.committed import Committed
from tests.slow.replay import Replay
from tests.slow.writers import WRITERS, World, Writer, world

_AT_THE_END = 5
"""Of so many images one is of a cut after the command had said that all was done."""
_AGAIN = 4
"""And in one the command is run again."""


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Make so many images of as many cuts, and see what is in them."""
    with world(folder) as made:
        return tried(made, count, seed)


def tried(
    made: World, count: int, seed: int, names: Sequence[str] = tuple(WRITERS), *, again: int = _AGAIN
) -> dict[str, object]:
    """Likewise in a world that is made already, and run the command in one image of ``again``."""
    random = Random(f"{seed} power")
    order = random.sample(names, len(names))
    images = run_again = 0
    for number, name in enumerate(order):
        share = count // len(order) + (number < count % len(order))
        if share:
            run_again += _cut(made, WRITERS[name], share, seed, again)
            images += share
    return {"images": images, "corrupt": 0, "lost": 0, "wrong": 0, "run again": run_again}


def _cut(made: World, writer: Writer, count: int, seed: int, again: int) -> int:
    """Make images of one run; returns in how many the command was run again."""
    right = made.right(writer)
    before = made.state(writer.before)
    entries = right.entries
    committed = Committed(made, before, entries)
    random = Random(f"{seed} {writer.name}")
    cuts = sorted(
        len(entries) if not random.randrange(_AT_THE_END) else random.randrange(len(entries)) for _ in range(count)
    )
    replay = Replay(before, made.work)
    calls = run_again = 0
    for number, cut in enumerate(cuts):
        while calls < cut:
            replay.take(entries[calls])
            calls += 1
        last = f"after {entries[calls - 1].call.name} of {entries[calls - 1].path}" if calls else "before anything"
        try:
            left = replay.cut(random)
            committed.check(left, calls, replay.synced(".ledger"))
            made.reset(left)
            made.check(writer, done=calls == len(entries))
            if not random.randrange(again):
                made.check_again(writer)
                run_again += 1
        except AssertionError as error:
            message = f"seed {seed}, {count} images of {writer.name!r}, {number}, cut {last}: {error}"
            raise AssertionError(message) from error
    while calls < len(entries):
        replay.take(entries[calls])
        calls += 1
    assert replay.whole() == right.image, f"{writer.name!r} wrote something that nobody saw"
    return run_again
