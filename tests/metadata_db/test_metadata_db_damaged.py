"""A damaged metadata database is reported with advice, or changes no result."""

import random
import shutil
from pathlib import Path

import catalogue
from catalogue.errors import DiskFailed
from catalogue.settings import Settings
from tests.support.commands import Command

PLACES = 5


def test_reports_damage_anywhere(asking: Command, untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(untaught_data, tmp_path / "copy"))
    path = folder / "catalogue.duckdb"
    whole = path.read_bytes()

    def reported(*, planned: bool) -> str:
        with catalogue.open(folder, settings=settings) as cat:
            try:
                return repr(cat.captures("*.com").plan.paths) if planned else cat.row_groups().to_csv()
            except DiskFailed as error:
                return str(error)

    expected = {planned: reported(planned=planned) for planned in (True, False)}
    messages = {planned: list[bytes]() for planned in expected}
    for place in range(PLACES):
        start = len(whole) // (PLACES + 1) * (place + 1)
        damaged = whole[:start] + random.Random(place).randbytes(20_000) + whole[start + 20_000 :]
        for planned, right in expected.items():
            path.write_bytes(damaged)
            if (found := reported(planned=planned)) != right:
                assert found.startswith(("the catalogue cannot be read (", f"{path} is damaged ("))
                assert found.endswith("); run: catalogue check --repair")
                assert "\n" not in found
                messages[planned].append(damaged)
    assert messages[False]
    command = Command(folder, asking.source, tmp_path)
    for damaged in {messages[True][0], messages[True][-1]}:
        path.write_bytes(damaged)
        ran = command("query", "*.com", "--count")
        assert ran.status == 74
        assert "run: catalogue check --repair" in ran.err
