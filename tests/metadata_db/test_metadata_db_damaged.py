"""Damage of the metadata database is reported with what to do, or makes no difference."""

import random
import shutil
from pathlib import Path

import catalogue
from catalogue.errors import DiskFailed
from catalogue.settings import Settings
from tests.support.commands import Command

PLACES = 4


def test_reports_damage_anywhere(asking: Command, untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(untaught_data, tmp_path / "copy"))
    path = folder / "catalogue.duckdb"

    def reported() -> str:
        with catalogue.open(folder, settings=settings) as cat:
            try:
                return cat.row_groups().to_csv()
            except DiskFailed as error:
                return str(error)

    expected, content = reported(), path.read_bytes()
    length = min(20_000, len(content) // PLACES)
    failing = []
    for place in range(PLACES):
        start = len(content) // (PLACES + 1) * (place + 1)
        path.write_bytes(content[:start] + random.Random(place).randbytes(length) + content[start + length :])
        damaged = path.read_bytes()
        if (found := reported()) != expected:
            assert found.endswith("; run: catalogue check --repair")
            assert "\n" not in found
            failing.append(damaged)
    # A small database is one block: if that is damaged, it cannot be opened and is built again.
    for damaged in failing[:1]:
        command = Command(folder, asking.source, tmp_path)
        words = ("sql", "select * from row_groups")
        path.write_bytes(damaged)
        assert command("check").status == 1
        ran = command(*words)
        assert ran.status == 74
        assert "run: catalogue check --repair" in ran.err
        assert command("check", "--repair").status == 0
        assert command(*words).status == 0
