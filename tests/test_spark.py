"""Spark reads the files of a plan and finds the same rows and instants, whatever its session's time zone.

The Iceberg table is not read here: its runtime is a jar that comes from Maven alone.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

import catalogue
from tests.lakes import every_row, sums

VARIABLE = "CATALOGUE_SPARK"

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a Python with pyspark")


@pytest.mark.timeout(120)
def test_spark_reads_the_files_of_a_plan(harvested: catalogue.Catalogue, mirror: Path) -> None:
    rows = every_row(mirror)
    zones, questions, expected = ["UTC", "Asia/Tokyo"], [], []
    for crawl in harvested.held():
        plan = harvested.captures("*.com", crawls=crawl).plan
        where = "url_surtkey >= 'com,' AND url_surtkey < 'com-'"
        questions.append({"files": [str(mirror / path) for path in plan.paths], "where": where})
        found = sums(rows, f"{where} AND crawl = '{crawl}'")
        expected.append({name: int(number) for name, number in found.items()})
    asked = {"base": str(mirror / "cc-index/table/cc-main/warc"), "zones": zones, "questions": questions}
    script = Path(__file__).with_name("spark_sums.py")
    done = subprocess.run(
        [os.environ[VARIABLE], script],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected * len(zones)
