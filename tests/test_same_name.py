"""The package ``catalogue`` of PyPI, a dependency of spaCy, in one environment with this one, which refuses to work."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from catalogue.same_name import OTHER, WAY_OUT
from tests.support.commands import Command

WHEELS = [*(Path(__file__).parents[1] / "dist" / "compiled").glob("*.whl")]
pytestmark = pytest.mark.skipif(not WHEELS, reason="there is no wheel; make wheel builds it")
OURS = "commoncrawl-catalogue"
COMMANDS = (["bin/catalogue", "--version"], [f"bin/{OURS}", "status"], ["bin/python", "-m", "catalogue", "doctor"])
OF_PIP = {"--ignore-installed", "--no-compile", "--yes"}
IMPORT = ["bin/python", "-c", "import catalogue"]


def pip(environment: Path, *words: str) -> None:
    """Run pip for another environment; skip the test if the package index cannot be reached."""
    from_index, uv = "==" in words[-1], Path(sys.executable).with_name("uv")
    for_environment = ["--quiet", "--python", str(environment / "bin/python")]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *for_environment, *words]
    if uv.exists() and not from_index:  # it is faster, but knows nothing of an index that pip was told of
        command = [str(uv), "pip", *(word for word in words if word not in OF_PIP), *for_environment]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if from_index and ran.returncode:
        pytest.skip(f"the other package cannot be installed: {ran.stderr[-200:]}")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("order", [(OURS, OTHER, "uninstall"), (OTHER, OURS)], ids="-".join)
def test_commands_and_imports_refuse_to_work(tmp_path: Path, order: tuple[str, ...]) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (installed,) = environment.glob("lib/*/site-packages")
    (installed / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for number, step in enumerate(order):
        if step == "uninstall":
            pip(environment, "uninstall", "--yes", OTHER)
        else:
            package = str(WHEELS[0]) if step == OURS else f"{OTHER}==2.0.10"
            pip(environment, "install", "--ignore-installed", "--no-deps", "--no-compile", package)
        if number:
            refuses(environment, [*COMMANDS, *([IMPORT] if step == OURS else [])], tmp_path)


def refuses(environment: Path, commands: list[list[str]], folder: Path) -> None:
    variables = Command(folder / "data", str(folder), folder).environment()
    for words in commands:
        program, *rest = words
        ran = subprocess.run(
            [environment / program, *rest], env=variables, cwd=folder, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (1, "")
        assert WAY_OUT in ran.stderr
        assert "spaCy" in ran.stderr
        if words != IMPORT:
            assert ran.stderr.startswith("catalogue: ")
            assert ran.stderr.count("\n") == 1
