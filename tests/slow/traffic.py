"""Whatever reads from a source, while much of what it says is wrong.

Harvests, questions, backfills, samples, snapshots, the index of 2012, records, outputs and a CDX server read from a
server of which three of ten answers are wrong, each kind that a client can notice as often as any other. What comes of
them is compared with what pyarrow and warcio read in the mirror's files. Each step is gone through once without faults
first, which says how many requests it needs.

Promised, and asserted: nothing is lost, nothing is wrong, nothing hangs, nothing is raised anywhere; requests are no
more than ``_MOST`` times those that are needed; memory is in the end about what it was after the first lap, and no
descriptor, thread or child is left. Between these, in ``tests.slow.traffic_refused``, come answers that asking again
does not change.

Left out is what no client can notice: a flipped bit where no checksum is (TLS has one), and a footer that is another
object's at first sight. Where these can be noticed they are among the refusals: records have digests, and what is read
after its footer has an ETag.
"""

import random
import re
import warnings
from collections import Counter
from dataclasses import asdict
from itertools import count as counting
from pathlib import Path
from shutil import rmtree

from tests.slow.parsers import mirror_of
from tests.slow.traffic_refused import refusals
from tests.slow.traffic_steps import OLD_INDEX, SNAPSHOT, Fetches, Harvests, Place, Records, Step, Switch, pool
from tests.slow.traffic_truth import Truth, old_index
from tests.slow.watching import Left, memory, strays, within
from tests.support.faults import DETECTABLE, THROTTLING, Fault, FaultServer, Kind, seeded

KINDS = sorted((DETECTABLE | THROTTLING) - {Kind.CHANGED_ETAG}, key=str)
"""That asking again helps against. A changed ETag says that the file is another, which is an answer."""
_FAULTS = [Fault(kind, hold=0.02, interval=0.005, excess=1 << 18) for kind in KINDS]
_SHARE = 0.3
_MOST = 1.6
"""Requests for one that is needed; 1.42 if each fault costs one, since three in a row are the most."""
_MOST_MEMORY = 50 << 20
_DEADLINE = 120.0
"""Seconds that a step may take."""
_SEASON = 20_000
"""Requests after which other steps are chosen."""
_OFTEN: dict[type, int] = {Records: 10, Fetches: 5}
"""In each lap; what is cheap makes up the bulk of the requests, and is left out when there were enough."""
_HARVESTS = 3
_REFUSALS = 2
"""In each lap."""
_CRAWL = re.compile(r"(?:crawl=|crawl-data/)([^/]+)")


class _Soak:
    """Laps, of steps that a seed chooses."""

    def __init__(self, truth: Truth, count: int, seed: int, folder: Path) -> None:
        self.truth = truth
        self.count = count
        self.folder = folder
        self.again = f"python -m tests.slow traffic --count {count} --seed {seed}"
        self.seed = seed
        self.switch = Switch()
        self.requests = self.needed = 0
        """Made by steps among faults, and by the same steps without."""
        self.plain = self.refused = 0
        """Made without faults, and by those who were refused something."""
        self.laps = 0
        self.steps: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.memory: list[int] = []
        """After each lap."""
        # Served from memory: to open a file takes as long as all else that the server does.
        self.files = {**_files(truth.mirror), OLD_INDEX: old_index()}

    def season(self, name: str) -> None:
        """Choose steps, and go through them again and again."""
        chance = random.Random(f"traffic {self.seed} {name}")
        until = min(self.count, self.requests + _SEASON)
        truth, needed, files = self.truth, {}, {**self.files}
        with FaultServer(files, script=self.switch) as self.server, strays() as self.strays:
            self.do(Harvests("all", truth.footers("all")), "all", f"{name}, without faults")
            asked = Counter(found[1] for each in self.server.log if (found := _CRAWL.search(each.path)))
            taking = [Harvests(crawl, truth.footers(crawl)) for crawl in truth.crawls]
            needed = {id(each): asked[each.crawl] + 1 for each in taking}  # the list of crawls is asked for each time
            steps = pool(truth, self.folder / "all" / "data", chance, self.folder / "pool")
            files |= {f"{SNAPSHOT}/{path}": data for path, data in _files(self.folder / "pool" / SNAPSHOT).items()}
            for number, step in enumerate(steps):
                needed[id(step)] = self.do(step, "step", f"{name}, without faults, {number}")
            self.plain += asked.total() + sum(needed.values())
            while self.requests < until:
                mixed = [step for step in steps for _ in range(_OFTEN.get(type(step), 1))]
                mixed += [taking[(self.laps * _HARVESTS + number) % len(taking)] for number in range(_HARVESTS)]
                refused = refusals(truth, chance, range(_REFUSALS * self.laps, _REFUSALS * (self.laps + 1)))
                mixed += refused
                chance.shuffle(mixed)
                for number, step in enumerate(mixed):
                    where = f"{name}, lap {self.laps}, {number}"
                    if step in refused:
                        self.refused += self.do(step, "step", where)
                    elif self.requests < until or type(step) not in _OFTEN:
                        self.switch.script = seeded(chance.getrandbits(60), _SHARE, _FAULTS)
                        self.requests += self.do(step, "step", where)
                        self.needed += needed[id(step)]
                        self.switch.script = None
                self.laps += 1
                self.memory.append(memory())
        assert not self.strays, "\n".join((*self.strays, f"after season {name}; again: {self.again}"))
        rmtree(self.folder)

    def do(self, step: Step, folder: str, where: str) -> int:
        """Do a step in an empty folder; how many requests that took."""
        place = self.folder / folder
        place.mkdir(parents=True)
        at = Place(self.server, self.switch, place, self.folder / "all" / "data")
        self.server.reset()
        try:
            within(_DEADLINE, lambda: step(at))
            exchanges = self.server.settle()
            assert not self.strays, "\n".join(self.strays)
        except (AssertionError, TimeoutError) as error:
            message = f"season {where}: {step}\n{error}\nagain: {self.again}"
            raise AssertionError(message) from error
        self.steps[type(step).__name__] += 1
        self.faults.update(each.fault.kind.value for each in exchanges if each.fault)
        if folder == "step":
            rmtree(place)
        return self.server.requests


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Go on until so many requests were made.

    Args:
        count: of requests, of those that might meet a fault.
        seed: of what is done and what goes wrong.
        folder: for what is made; a mirror too, if CATALOGUE_TEST_MIRROR names none.

    Returns:
        Requests, faults by kind, and what they cost.

    Raises:
        AssertionError: if a promise was not kept; it says by what step.
    """
    truth = Truth(mirror_of(folder / "mirror"))
    soak = _Soak(truth, count, seed, folder / "soak")
    before = Left.now()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for season in counting():
            soak.season(str(season))
            if soak.requests >= count:
                break
    left, growth = Left.now(before) - before, memory() - soak.memory[0]
    truth.close()
    ratio = soak.requests / soak.needed
    faulted = sum(soak.faults[kind.value] for kind in KINDS)
    figures: dict[str, object] = {
        "requests": soak.requests,
        "faulted": faulted,
        "requests_for_each_needed": round(ratio, 3),
        "without_faults": soak.plain,
        "refused": soak.refused,
        "laps": soak.laps,
        "memory_grown_mb": round(growth / 1e6, 1),
        "memory_mb": [round(each / 1e6) for each in soak.memory[:: -(-len(soak.memory) // 20)]],
        "left_over": asdict(left),
        "steps": dict(soak.steps),
        "faults": dict(soak.faults.most_common()),
    }
    assert ratio <= _MOST, figures
    assert growth <= _MOST_MEMORY, figures
    assert max(left.descriptors, left.threads, left.children) <= 0, figures
    return figures


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
