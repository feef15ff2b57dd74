"""What docs/internals/promises.md names is there."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISES = (ROOT / "docs/internals/promises.md").read_text(encoding="utf-8")
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_FUNCTION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
_IN_SOAK = re.compile(r"^@in_soak\n(?:@.*\n|[ )].*\n)*def (\w+)\(", re.MULTILINE)


@cache
def functions_of(path: str, named: re.Pattern[str] = _FUNCTION) -> set[str]:
    return {*named.findall((ROOT / path).read_text(encoding="utf-8"))}


def test_named_tests_exist() -> None:
    named = _NAMED.findall(PROMISES)
    assert len(named) > 150
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or (test and not (test.startswith("test_") and test in functions_of(path)))
    ]
    assert not missing


def test_every_row_names_a_test_that_make_test_runs() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("|")]
    promises = [row for row in rows if not row.startswith(("| What may happen |", "|---"))]
    assert len(promises) > 70
    for row in promises:
        happens, promised, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert happens
        assert promised
        assert any(test not in functions_of(path, _IN_SOAK) for path, test in _NAMED.findall(tests)), row
        assert set(re.sub(r"`[^`]*`", "", tests)) <= set(", "), row
