"""The recipe for conda, the Dockerfile and the page about installation agree with pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = DECLARED["project"]
RECIPE = (ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "packaging/Dockerfile").read_text(encoding="utf-8")
CONDA_NAMES = {"brotli": "brotli-python", "duckdb": "python-duckdb", "isal": "python-isal"}
NOT_FOR_USERS = {"docs", "test"}


def listed(heading: str) -> set[str]:
    (block,) = re.findall(rf"^ +{heading}:\n((?:^ +- .*\n)+)", RECIPE, re.MULTILINE)
    return {line.strip().removeprefix("- ") for line in block.splitlines()}


def test_recipe_has_the_requirements_version_and_commands_of_the_project() -> None:
    needed = {f"python {PROJECT['requires-python']}".replace("3.11", "${{ python_min }}")}
    for requirement in PROJECT["dependencies"]:
        ((name, bound),) = re.findall(r"^([\w.-]+)(>=[\d.]+)", requirement)
        needed.add(f"{CONDA_NAMES.get(name, name)} {bound}")
    assert listed("run") == needed
    assert {each.replace(" ", "") for each in listed("host")} >= {*DECLARED["build-system"]["requires"]}
    assert f'\n  version: "{PROJECT["version"]}"\n  python_min: "3.11"\n' in RECIPE
    assert PROJECT["requires-python"] == ">=3.11"
    assert listed("entry_points") == {f"{name} = {function}" for name, function in PROJECT["scripts"].items()}
    assert f"\n  summary: {PROJECT['description']}\n  license: {PROJECT['license']}\n" in RECIPE


def test_image_is_built_from_existing_files_and_extras() -> None:
    copied = {word for line in re.findall(r"^COPY ([^-].*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()}
    ignored = (ROOT / "packaging/Dockerfile.dockerignore").read_text(encoding="utf-8")
    assert {"pyproject.toml", "catalogue", "queries"} <= copied == {*re.findall(r"^!(.*)$", ignored, re.MULTILINE)}
    assert all((ROOT / name).exists() for name in copied)
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert extras in PROJECT["optional-dependencies"]


def test_pages_list_all_extras_and_a_reason_for_every_dependency() -> None:
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    extras = PROJECT["optional-dependencies"].keys() - NOT_FOR_USERS
    assert {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)} == extras
    page = (ROOT / "docs/internals/decisions.md").read_text(encoding="utf-8")
    table = page.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    listed = {name for cell in re.findall(r"^\| ([a-z].*?) \|", table, re.MULTILINE) for name in cell.split(", ")}
    extras = PROJECT["optional-dependencies"]
    users = [PROJECT["dependencies"], *(extras[name] for name in extras.keys() - NOT_FOR_USERS)]
    needed = {re.split(r"[\[<>=;! ]", requirement)[0] for group in users for requirement in group}
    assert listed == needed - {PROJECT["name"]}
