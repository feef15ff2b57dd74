import pytest

from tests.support import canaries


@pytest.fixture(autouse=True)
def _without_proxies_but_with_a_netrc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NETRC", canaries.ENVIRONMENT["NETRC"])
