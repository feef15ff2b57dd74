"""Split a plan into parts that can be read independently, with the same requests."""

from collections.abc import Iterator
from dataclasses import replace

from catalogue.plan.plan import PlannedFile, PlannedRowGroup, ReadPlan
from catalogue.plan.requests import PlannedRequest


def sliced(plan: ReadPlan, size: int) -> Iterator[ReadPlan]:
    """Return parts of a plan, in its order, of about ``size`` bytes.

    Row groups that share a request stay together. The page indexes of the plan have been fetched.
    """
    by_path: dict[str, list[list[PlannedRequest]]] = {}
    for number, wave in enumerate(plan.waves):
        for fetch in wave:
            waves = by_path.setdefault(fetch.path, [[] for _ in plan.waves])
            waves[number].append(fetch)
    for file in plan.files:
        waves = by_path.get(file.file.path, [])
        for groups in _together(file, waves, size):
            ordinals = {group.ordinal for group in groups}
            mine = (tuple(fetch for fetch in wave if fetch.parts[0].row_group in ordinals) for wave in waves)
            yield replace(
                plan,
                files=(replace(file, row_groups=tuple(groups)),),
                waves=tuple(wave for wave in mine if wave),
                counted=(),
                missing=(),
                warnings=(),
            )


def _together(file: PlannedFile, waves: list[list[PlannedRequest]], size: int) -> Iterator[list[PlannedRowGroup]]:
    """Yield runs of row groups of a file, cut where no request is shared."""
    sizes: dict[int, int] = {}
    goes_on: set[int] = set()
    for fetch in (fetch for wave in waves for fetch in wave):
        ordinals = sorted({part.row_group for part in fetch.parts})
        sizes[ordinals[0]] = sizes.get(ordinals[0], 0) + len(fetch.range)
        # Of a request for several, each but the last goes on into the next that is read.
        goes_on.update(group.ordinal for group in file.row_groups if ordinals[0] <= group.ordinal < ordinals[-1])
    run: list[PlannedRowGroup] = []
    size_so_far = 0
    for group in file.row_groups:
        run.append(group)
        size_so_far += sizes.get(group.ordinal, 0)
        if size_so_far >= size and group.ordinal not in goes_on:
            yield run
            run, size_so_far = [], 0
    if run:
        yield run
