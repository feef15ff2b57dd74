"""Bits that flip at rest in store and catalogue: each is found, or makes no difference; and all is mended."""

from collections import Counter
from pathlib import Path
from random import Random

from catalogue import Catalogue, metadata_db
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import StoreError
from catalogue.store.inspecting import inspected
from tests.support.rot import SHOWN, STORE, content, flip, flip_value, fresh, harvested, opens, rows

MENDED_EVERY = 40
"""How often what was found is mended, too."""
_PAGE = 4096


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Flip a bit, look, and put it back, so many times."""
    random = Random(seed)
    figures: Counter[str] = Counter()
    with harvested(folder) as (server, cat):
        trial = _Trial(cat, folder)
        for number in range(count):
            kind = random.choices(["value", "store", "head", "catalogue"], [4, 3, 1, 2])[0]
            where = trial.flip(kind, random)
            said = f"seed {seed}, flip {number} of {kind} at {where}"
            found = trial.look(kind, where, said)
            figures[f"{kind}s {'found' if found else 'harmless'}"] += 1
            if number % MENDED_EVERY == 0:
                figures["mended"] += 1
                figures["requests"] += trial.mend(said)
        asked = len(server.log)
    assert asked == figures["requests"], f"seed {seed}: {asked} requests arrived, {figures['requests']} were made"
    return dict(figures)


class _Trial:
    """A store and a catalogue as they should be, and one in which a bit is flipped."""

    def __init__(self, cat: Catalogue, folder: Path) -> None:
        self._cat = cat
        self._data = cat.session.data
        self._store, self._shown = ((cat.session.data / name).read_bytes() for name in (STORE, SHOWN))
        self._rows, self._content = rows(cat.session.data / STORE), content(cat.session.data / STORE)
        self._keys = [(name, key) for name, values in self._rows.items() for key in values]
        self._anew = folder / "anew.duckdb"
        metadata_db.make_anew(self._anew, cat.path, cat.session.create_store(), COMMON_CRAWL)
        cat.close()

    def flip(self, kind: str, random: Random) -> str:
        """Flip one; returns where."""
        fresh(self._data, STORE, self._store)
        fresh(self._data, SHOWN, self._shown)
        if kind == "value":
            name, key = random.choice(self._keys)
            flip_value(self._data / STORE, name, key, random)
            return f"{name}: {key}"
        file, data = (SHOWN, self._shown) if kind == "catalogue" else (STORE, self._store)
        bit = random.randrange(8 * (_PAGE if kind == "head" else len(data)))
        fresh(self._data, file, flip(data, bit))
        return f"bit {bit}"

    def look(self, kind: str, where: str, said: str) -> bool:
        """Whether it is found; what is not must make no difference."""
        if kind == "catalogue":
            return bool(list(metadata_db.differences(self._data / SHOWN, self._anew)))
        with inspected(self._data / STORE) as inspection:
            wrong = inspection.wrong()
            seen = [(name, each) for name in self._rows for each in inspection.values(name)] if wrong is None else []
            bad = [f"{name}: {each.key}" for name, each in seen if each.label is None]
        if kind == "value":
            assert (wrong, bad) == (None, [where]), f"{said}: {wrong}, {bad}"
        if not (wrong or bad):
            try:
                assert opens(self._data / STORE), said
                assert rows(self._data / STORE) == self._rows, said
            except StoreError as error:
                raise AssertionError(f"{said}: {error}") from error
        return bool(wrong or bad)

    def mend(self, said: str) -> int:
        """Mend it, and see that all is as it was; returns requests."""
        try:
            done = self._cat.repair()
            assert not done.left, f"{said}: {done.left}"
            after = content(self._data / STORE)
            for name, values in self._content.items():
                assert after.get(name) == values, f"{said}: {name} is not what it was"
            most = sum(max(0, len(values) - done.salvaged.get(name, 0)) for name, values in self._rows.items())
            if not done.aside:
                most = len(done.found)
            assert done.requests <= most, f"{said}: {done.requests} requests for {most} values"
            assert self._cat.check().complete, said
        finally:
            self._cat.close()
        return done.requests
