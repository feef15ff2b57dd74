"""What a command had said was safe, by the moments at which it said so."""

from collections.abc import Mapping, Sequence

from tests.slow.disk import Call, Entry
from tests.slow.replay import Image, Replay
from tests.slow.writers import STORE, World


class Committed:
    """The states of a store that one run committed, one after the other."""

    def __init__(self, made: World, before: Image, entries: Sequence[Entry], *, only_last: bool = False) -> None:
        """Find them: a transaction is committed when the call that syncs its last page has returned.

        Args:
            made: the run is of.
            before: how the folder was then.
            entries: its calls.
            only_last: leave out all but the state before and the last one.
        """
        self._made = made
        replay = Replay(before, made.work)
        self._states: list[Mapping[tuple[str, str], object]] = [made.held(before)]
        self._since = [0]
        """Numbers of calls after which each was safe."""
        store = str(made.work / STORE)
        moments = [
            number
            for number, entry in enumerate(entries, 1)
            if entry.call is Call.SYNC and entry.path.startswith(store) and not entry.error
        ]
        looked_at = {*(moments[-1:] if only_last else moments), len(entries)}
        for number, entry in enumerate(entries, 1):
            replay.take(entry)
            if number in looked_at and (state := made.held(replay.whole())) != self._states[-1]:
                more = state.keys() >= self._states[-1].keys() or state.keys() <= self._states[-1].keys()
                assert more, "what was committed is not in the store"
                self._states.append(state)
                self._since.append(number)

    def check(self, left: Image, calls: int, ledgers: Mapping[str, bytes]) -> None:
        """See that an image has what was safe.

        Args:
            left: of the folder.
            calls: that had been made.
            ledgers: what was safe of each.

        Raises:
            AssertionError: if it has not.
        """
        at = max(n for n, since in enumerate(self._since) if since <= calls)
        # The transaction after the last one that was said to be safe may be so, too.
        possible = self._states[at : at + 2]
        assert self._made.held(left) in possible, "the store is in none of the states that were committed"
        for name, lines in ledgers.items():
            if lines.count(b"\n") > 1:  # the first says what it is of, and nothing of what is done
                assert left.files.get(name, b"").startswith(lines), f"{name} lacks what was safe in it"
