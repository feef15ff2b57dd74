"""Schemathesis sends requests that the OpenAPI document allows and forbids; no answer contradicts the document.

``make soak`` generates more requests for each path, and sends 600 requests derived from the document, too. See https://schemathesis.readthedocs.io/.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import catalogue
from catalogue.demo import Miniature
from catalogue.settings import Settings
from tests.support.amounts import COMPLETE, EXAMPLES, in_soak
from tests.support.serving import serving

ROOT = Path(__file__).parents[2]
CRAWL = "CC-MAIN-2026-30"
# A request with valid parameters can still be refused.
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "422"]
"""


@in_soak
@pytest.mark.timeout(3600)  # with many requests
def test_answers_agree_with_the_document(miniature: Miniature, tmp_path: Path) -> None:
    settings = Settings(source=str(miniature.folder), cache=tmp_path / "cache")
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(CRAWL, subsets="all")
    config = tmp_path / "schemathesis.toml"
    config.write_text(SETTINGS)
    program = Path(sys.executable).with_name("schemathesis")
    options = [f"--phases=examples,{'coverage,' if COMPLETE else ''}fuzzing", f"--max-examples={EXAMPLES // 5}"]
    options += ["--checks=all", "--seed=1", "--no-color", "--generation-database=none"]
    with serving(tmp_path / "data", settings) as address:
        done = subprocess.run(
            [program, "--config-file", config, "run", *options, f"{address}/api/openapi.json"],
            cwd=tmp_path,
            env={
                **os.environ,
                "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
            },  # caches what is slow to compute
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Operations:       4 selected / 4 total" in done.stdout
