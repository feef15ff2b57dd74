"""Options override the environment, which overrides ``config.toml``, which overrides the defaults."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from platformdirs import user_config_path

from catalogue.errors import QueryError
from catalogue.settings import (
    COLLINFO_SOURCE,
    DEFAULT_SOURCE,
    Settings,
    install_command,
    load_settings,
    package_version,
)

Config = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any settings."""
    for name in [*os.environ]:
        if name.startswith(("CATALOGUE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def config() -> Config:
    """Writes the user's ``config.toml``."""

    def write(text: str | bytes) -> Path:
        file = user_config_path("catalogue") / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def test_has_defaults(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.source == DEFAULT_SOURCE == "https://data.commoncrawl.org/"
    assert COLLINFO_SOURCE == "https://index.commoncrawl.org/"
    assert (settings.contact, settings.rate, settings.connections, settings.patience) == (None, None, None, None)
    assert settings.cache.is_relative_to(tmp_path)
    assert settings.asks_strangers


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("source", ["https://a.example/", "https://b.example/", "https://c.example/"]),
        ("contact", ["a@example.org", "b@example.org", "c@example.org"]),
        ("rate", [1.5, 2.5, 3.5]),
        ("connections", [1, 2, 3]),
        ("patience", [0.0, 2.5, 3.5]),
        ("bandwidth", [2e6, 3e6, 4e6]),
        ("latency", [0.0, 0.5, 1.5]),
        ("cache_size", [0, 1, 2]),
        ("cache", [Path("/a"), Path("/b"), Path("/c")]),
        ("data", [Path("/a"), Path("/b"), Path("/c")]),
    ],
)
def test_options_override_environment_and_file(
    name: str, values: list[object], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file, in_environment, option = values
    config(f"{name} = {in_file if isinstance(in_file, int | float) else json.dumps(str(in_file))}\n")
    assert getattr(load_settings(), name) == in_file
    monkeypatch.setenv(f"CATALOGUE_{name.upper()}", str(in_environment))
    loaded = getattr(load_settings(), name)
    assert (loaded, type(loaded)) == (in_environment, type(in_environment))
    assert getattr(load_settings(**{name: option}), name) == option
    assert getattr(load_settings(**{name: None}), name) == in_environment
    monkeypatch.setenv(f"CATALOGUE_{name.upper()}", "")  # the same as no variable
    assert getattr(load_settings(), name) == in_file


def test_ignores_other_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOGUE_TEST_MIRROR", "elsewhere")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("rate", value) for value in ("0", "-1", "fast", "nan", "inf")),
        *(("connections", value) for value in ("0", "-3", "2.5", "many")),
        *(("patience", value) for value in ("-0.1", "nan", "inf")),
        *(("contact", value) for value in ("a@example.org\r\nX-Evil: 1", "a\x7fb")),
    ],
)
def test_rejects_invalid_values(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"CATALOGUE_{name.upper()}", value)
    with pytest.raises(QueryError, match=f"of the setting {name}; use a "):
        load_settings()
    monkeypatch.delenv(f"CATALOGUE_{name.upper()}")
    with pytest.raises(QueryError, match=f"of the setting {name}; use a "):
        load_settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rate", ["true", "[1]", "inf", "nan", "2022-01-31"]),
        ("connections", ["true", "2.5", "inf", "0"]),
        ("patience", ["-1", "{}"]),
        ("source", ["5", "[]", '["https://example.com/", 5]']),
        ("contact", ["5", "false"]),
        ("cache", ["5", '["/x"]']),
    ],
)
def test_rejects_invalid_values_in_the_file(name: str, values: list[str], config: Config) -> None:
    for value in values:
        config(f"{name} = {value}")
        with pytest.raises(QueryError, match=f"of the setting {name}; use a "):
            load_settings()


@pytest.mark.parametrize("content", ["source", 'source = "x', "[", b"\xff\xfe", "rate = 1\nrate = 2"])
def test_unreadable_file_is_an_error(content: str, config: Config) -> None:
    file = config(content)
    with pytest.raises(QueryError, match=f"{file} cannot be read: "):
        load_settings()
    with pytest.raises(QueryError, match="cannot be read"):
        load_settings(source="https://example.com/")  # even if it would not be needed


def test_folder_instead_of_the_file_is_an_error() -> None:
    (user_config_path("catalogue") / "config.toml").mkdir(parents=True)
    with pytest.raises(QueryError, match="cannot be read"):
        load_settings()


def test_file_instead_of_the_folder_means_no_settings() -> None:
    folder = user_config_path("catalogue")
    folder.parent.mkdir(parents=True)
    folder.touch()
    assert load_settings() == Settings()


@pytest.mark.parametrize("line", ["speed = 5", "[source]\nurl = 1\n[speed]", "Rate = 5"])
def test_rejects_unknown_settings(line: str, config: Config) -> None:
    file = config(line)
    with pytest.raises(
        QueryError, match=f"{file}: unknown setting '.*'; the settings are source, contact, rate, connections, patience"
    ):
        load_settings()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("https://data.commoncrawl.org/", True),
        ("https://data.commoncrawl.org", True),
        ("https://data.commoncrawl.org//", False),
        ("https://example.com/", False),
        ("s3://commoncrawl/", False),
    ],
)
def test_recognizes_common_crawl_with_and_without_slash(source: str, *, expected: bool) -> None:
    settings = load_settings(source=source)
    assert settings.asks_strangers == expected
    assert settings.source == (DEFAULT_SOURCE if expected else source)


def test_user_agent_names_tool_and_contact() -> None:
    assert load_settings().user_agent == f"commoncrawl-catalogue/{package_version()} (no contact set)"
    assert load_settings(contact="a@example.org").user_agent.endswith(" (a@example.org)")
    assert package_version()[0].isdecimal()


_CHECKOUT = {"url": "file:///a%20checkout", "dir_info": {}}
_EDITABLE = {"url": "file:///a%20checkout", "dir_info": {"editable": True}}
_WHEEL = {"url": "file:///a.whl", "archive_info": {}}
_RECEIPT = """
[tool]
requirements = [{name = "other", extras = ["x"]}, {name = "commoncrawl-catalogue", extras = ["s3"], path = "/a.whl"}]
"""


@pytest.mark.parametrize(
    ("environment", "file", "origin", "command"),
    [
        ("venv", "pyvenv.cfg", None, "{python} -m pip install 'commoncrawl-catalogue[serve]'"),
        ("venv", "pyvenv.cfg", _WHEEL, "{python} -m pip install 'commoncrawl-catalogue[serve]'"),
        ("venv", "pyvenv.cfg", _CHECKOUT, "{python} -m pip install '/a checkout[serve]'"),
        ("venv", "pyvenv.cfg", _EDITABLE, "{python} -m pip install -e '/a checkout[serve]'"),
        ("tools/x", "uv-receipt.toml", _WHEEL, "uv tool install 'commoncrawl-catalogue[s3,serve]'"),
        ("venvs/x", "pipx_metadata.json", _CHECKOUT, "pipx runpip x install 'commoncrawl-catalogue[serve]'"),
        (
            ".cache/91a8",
            "pipx_metadata.json",
            None,
            "pipx run --spec 'commoncrawl-catalogue[serve]' commoncrawl-catalogue ...",
        ),
        (".cache/91a8", "pipx_metadata.json", _WHEEL, "pipx run --spec '/a.whl[serve]' commoncrawl-catalogue ..."),
        ("archive-v0/HYaN", "pyvenv.cfg", None, "uvx --from 'commoncrawl-catalogue[serve]' commoncrawl-catalogue ..."),
        ("archive-v0/HYaN", "pyvenv.cfg", _CHECKOUT, "uvx --from '/a checkout[serve]' commoncrawl-catalogue ..."),
    ],
)
def test_install_command_depends_on_the_installation(
    environment: str,
    file: str,
    origin: dict[str, object] | None,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = tmp_path / "commoncrawl_catalogue-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: commoncrawl-catalogue\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / environment).mkdir(parents=True)
    (tmp_path / environment / file).write_text(_RECEIPT)
    assert install_command("serve", tmp_path / environment) == command.replace("{python}", sys.executable)
