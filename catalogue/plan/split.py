"""A plan → slices of it that can be read apart from each other, in as many requests as the whole."""

from collections.abc import Iterator
from dataclasses import replace

from catalogue.plan.plan import PlannedFile, PlannedRowGroup, ReadPlan
from catalogue.plan.requests import PlannedRequest


def sliced(plan: ReadPlan, size: int) -> Iterator[ReadPlan]:
    """Slices of a plan, in its order.

    Args:
        plan: whose indexes have been fetched.
        size: bytes of a slice, about: whole row groups, and those that share a request stay together.

    Returns:
        Plans that read every row group of the plan once, with its requests; none if it reads nothing.
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
    """The row groups of a file in runs of about a size, cut where no request reaches over."""
    sizes: dict[int, int] = {}
    goes_on: set[int] = set()
    for fetch in (fetch for wave in waves for fetch in wave):
        ordinals = sorted({part.row_group for part in fetch.parts})
        sizes[ordinals[0]] = sizes.get(ordinals[0], 0) + len(fetch.range)
        # Of a request for several, each but the last goes on into the next that is read.
        goes_on.update(group.ordinal for group in file.row_groups if ordinals[0] <= group.ordinal < ordinals[-1])
    run: list[PlannedRowGroup] = []
    held = 0
    for group in file.row_groups:
        run.append(group)
        held += sizes.get(group.ordinal, 0)
        if held >= size and group.ordinal not in goes_on:
            yield run
            run, held = [], 0
    if run:
        yield run
