"""A source may name several hosts; ``config.toml`` has their rules."""

from pathlib import Path

import pytest
from platformdirs import user_config_path

import catalogue
from catalogue.errors import QueryError
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE, HOSTS, Host, Settings, load_settings
from catalogue.source.open import open_source

FIRST, SECOND = HOSTS


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CATALOGUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.chdir(tmp_path)


def config(text: str) -> None:
    file = user_config_path("catalogue") / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("source", "address", "hosts"),
    [
        ("commoncrawl", DEFAULT_SOURCE, ()),
        (DEFAULT_SOURCE, DEFAULT_SOURCE, ()),
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
    assert settings.list_source == (COLLINFO_SOURCE if "example" not in address else address)


def test_a_folder_is_no_list(tmp_path: Path) -> None:
    for name in ("huggingface", "commoncrawl,huggingface"):
        (tmp_path / name).mkdir()
        assert load_settings(source=name) == Settings(source=name, cache=tmp_path / "cache")


def test_tables_define_hosts_and_change_rules(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_rejects_invalid_rules(table: str) -> None:
    config(table)
    with pytest.raises(QueryError) as raised:
        load_settings()
    assert "secret" not in str(raised.value)
    assert "[hosts.…]" in str(raised.value) or "without query or credentials" in str(raised.value)


def test_names_unknown_hosts() -> None:
    with pytest.raises(QueryError, match="unknown host 'hugingface' of the source; the hosts are commoncrawl, hugg"):
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
