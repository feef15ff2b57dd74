"""Options override the environment, which overrides ``config.toml``, which overrides the defaults; rules of hosts."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from platformdirs import user_config_path

import catalogue
from catalogue.errors import QueryError
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE, HOSTS, Host, Settings, install_command, load_settings
from catalogue.source.open import open_source

FIRST, SECOND = HOSTS
Config = Callable[[str], Path]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: Patch) -> None:
    """A user without any settings."""
    for name in [*os.environ]:
        if name.startswith(("CATALOGUE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def config() -> Config:
    """Writes the user's ``config.toml``."""

    def write(text: str | bytes) -> Path:
        file = user_config_path("catalogue") / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("source", ["https://a.example/", "https://b.example/", "https://c.example/"]),
        ("contact", ["a@example.org", "b@example.org", "c@example.org"]),
        *(("rate", [1.5, 2.5, 3.5]), ("connections", [1, 2, 3]), ("patience", [0.0, 2.5, 3.5])),
        *(("bandwidth", [2e6, 3e6, 4e6]), ("latency", [0.0, 0.5, 1.5]), ("cache_size", [0, 1, 2])),
        *((name, [Path("/a"), Path("/b"), Path("/c")]) for name in ("cache", "data")),
    ],
)
def test_options_override_environment_and_file(
    name: str, values: list[object], config: Config, monkeypatch: Patch
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


def test_ignores_other_variables_and_a_file_instead_of_the_folder(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("CATALOGUE_TEST_MIRROR", "elsewhere")
    assert load_settings() == Settings()
    assert load_settings().cache.is_relative_to(tmp_path)
    folder = user_config_path("catalogue")
    folder.parent.mkdir(parents=True)
    folder.touch()
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "typed", "in_file"),
    [
        ("rate", ["0", "-1", "fast", "nan", "inf"], ["true", "[1]", "inf", "nan", "2022-01-31"]),
        ("connections", ["0", "-3", "2.5", "many"], ["true", "2.5", "inf", "0"]),
        ("patience", ["-0.1", "nan", "inf"], ["-1", "{}"]),
        ("contact", ["a@example.org\r\nX-Evil: 1", "a\x7fb"], ["5", "false"]),
        ("source", [], ["5", "[]", '["https://example.com/", 5]']),
        ("cache", [], ["5", '["/x"]']),
    ],
)
def test_rejects_invalid_values(
    name: str, typed: list[str], in_file: list[str], config: Config, monkeypatch: Patch
) -> None:
    def refused(**option: str) -> None:
        with pytest.raises(QueryError, match=f"of the setting {name}; use a "):
            load_settings(**option)

    for value in typed:
        refused(**{name: value})
        with monkeypatch.context() as patched:
            patched.setenv(f"CATALOGUE_{name.upper()}", value)
            refused()
    for value in in_file:
        config(f"{name} = {value}")
        refused()


@pytest.mark.parametrize("content", ["source", 'source = "x', "[", b"\xff\xfe", "rate = 1\nrate = 2", None])
def test_unreadable_file_is_an_error(content: str | None, config: Config) -> None:
    file = config(content or "")
    if content is None:
        file.unlink()
        file.mkdir()
    with pytest.raises(QueryError, match=f"{file} cannot be read: "):
        load_settings()
    with pytest.raises(QueryError, match="cannot be read"):
        load_settings(source="https://example.com/")  # even if it would not be needed


@pytest.mark.parametrize("line", ["speed = 5", "[source]\nurl = 1\n[speed]", "Rate = 5"])
def test_rejects_unknown_settings(line: str, config: Config) -> None:
    file = config(line)
    with pytest.raises(
        QueryError, match=f"{file}: unknown setting '.*'; (use source, contact, rate|did you mean rate?)"
    ):
        load_settings()


def test_user_agent_names_tool_and_contact() -> None:
    assert re.fullmatch(r"commoncrawl-catalogue/\d\S* \(no contact set\)", load_settings().user_agent)
    assert load_settings(contact="a@example.org").user_agent.endswith(" (a@example.org)")


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
    environment: str, file: str, origin: dict[str, object] | None, command: str, tmp_path: Path, monkeypatch: Patch
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


@pytest.mark.parametrize(
    ("source", "address", "hosts"),
    [
        ("commoncrawl", DEFAULT_SOURCE, ()),
        (DEFAULT_SOURCE, DEFAULT_SOURCE, ()),
        ("https://data.commoncrawl.org", DEFAULT_SOURCE, ()),
        *((each, each, ()) for each in ("https://data.commoncrawl.org//", "https://example.com/", "s3://commoncrawl/")),
        ("huggingface", SECOND.address, (SECOND,)),
        (SECOND.address, SECOND.address, (SECOND,)),
        (SECOND.address.rstrip("/"), SECOND.address, (SECOND,)),
        ("commoncrawl,huggingface", DEFAULT_SOURCE, (FIRST, SECOND)),
        ("huggingface, commoncrawl", SECOND.address, (SECOND, FIRST)),
        (["commoncrawl", "huggingface"], DEFAULT_SOURCE, (FIRST, SECOND)),
        ("commoncrawl,commoncrawl", DEFAULT_SOURCE, ()),
        (
            "https://data.commoncrawl.org,https://a.example",
            DEFAULT_SOURCE,
            (FIRST, Host("https://a.example", "https://a.example")),
        ),
        ("https://a.example/b,c/", "https://a.example/b,c/", ()),
        ("commoncrawl,s3://bucket/", DEFAULT_SOURCE, (FIRST, Host("s3://bucket/", "s3://bucket/"))),
    ],
)
def test_source_names_hosts(source: object, address: str, hosts: tuple[Host, ...]) -> None:
    settings = load_settings(source=source)
    assert (settings.source, settings.hosts) == (address, hosts)
    assert settings.is_anonymous is (address == DEFAULT_SOURCE)
    assert settings.list_source == (COLLINFO_SOURCE if address in {DEFAULT_SOURCE, SECOND.address} else address)


def test_a_folder_is_no_list(tmp_path: Path) -> None:
    for name in ("huggingface", "commoncrawl,huggingface"):
        (tmp_path / name).mkdir()
        assert load_settings(source=name) == Settings(source=name)


def test_tables_define_hosts_and_change_rules(config: Config, monkeypatch: Patch) -> None:
    config(
        'source = ["commoncrawl", "mirror"]\n\n'
        '[hosts.mirror]\naddress = "http://127.0.0.1:8080/files"\nrate = 2.5\nquota = [300, 60]\n'
        'redirects = ["*.example.net", "127.0.0.2"]\nfirst_crawl = 2024\n\n[hosts.huggingface]\nrate = 1\n'
    )
    mirror = Host("mirror", "http://127.0.0.1:8080/files", 2.5, (300, 60), ("*.example.net", "127.0.0.2"), 2024)
    assert load_settings().hosts == (FIRST, mirror)
    assert load_settings(source="huggingface").hosts[0].rate == 1
    assert load_settings(source="mirror").source == mirror.address
    monkeypatch.setenv("CATALOGUE_SOURCE", "mirror,commoncrawl")
    assert load_settings().hosts == (mirror, FIRST)
    monkeypatch.setenv("CATALOGUE_HOSTS", "x")  # no variable of a setting
    assert load_settings().hosts == (mirror, FIRST)


@pytest.mark.parametrize(
    "table",
    [
        "[hosts]\nmirror = 1",
        "hosts = 1",
        "[hosts.mirror]",
        '[hosts.mirror]\naddress = "folder"',
        '[hosts.mirror]\naddress = "https://me:secret@a.example/"',
        *(f'[hosts.mirror]\naddress = "https://a.example/"\n{rule}' for rule in ("rate = 0", 'rate = "fast"', "x = 1")),
        *(f"[hosts.huggingface]\n{rule}" for rule in ("quota = [0, 300]", "quota = [3000]", "quota = 5", "rate = inf")),
        *(f"[hosts.huggingface]\nredirects = {rule}" for rule in ('["*"]', '["a/b"]', '["a b"]', "[1]", '["*.*.x"]')),
        "[hosts.huggingface]\nfirst_crawl = -2026",
    ],
)
def test_rejects_invalid_rules(table: str, config: Config) -> None:
    config(table)
    with pytest.raises(QueryError) as raised:
        load_settings()
    assert "secret" not in str(raised.value)
    assert "[hosts.…]" in str(raised.value) or "without query or credentials" in str(raised.value)


def test_names_unknown_hosts() -> None:
    with pytest.raises(QueryError, match="unknown host of the source 'hugingface'; did you mean huggingface"):
        load_settings(source="commoncrawl,hugingface")


def test_rules_of_the_built_in_hosts() -> None:
    for rate, rates in ((None, (5.0, 9.4)), (2.0, (2.0, 2.0)), (50.0, (5.0, 9.4))):
        settings = load_settings(source="commoncrawl,huggingface", rate=rate)
        source = open_source(settings.source, settings)
        limits = [each.limiter.policy for each in source.hosts_of()]
        source.close()
        assert [each.rate for each in limits] == [pytest.approx(each, abs=0.1) for each in rates]
        assert limits[1].burst + (limits[1].rate or 0) * 300 <= 3000
        assert source.url == DEFAULT_SOURCE


def test_machines_of_a_cluster_divide_limits_and_quotas(tmp_path: Path) -> None:
    settings = load_settings(source="huggingface,commoncrawl")
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        one = cat.session.machine_settings(4)
    assert one.source == SECOND.address
    source = open_source(one.source, one)
    second, first = (each.limiter.policy for each in source.hosts_of())
    source.close()
    assert first.rate == 1.25
    assert second.rate
    assert 4 * (second.burst + second.rate * 300) <= 3000
