"""What a server's ``/metrics`` reports."""

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.support.serving import get

ANSWERS = "catalogue_http_requests_total"


def samples(address: str) -> dict[tuple[str, ...], float]:
    """Return values by name and labels; the labels are in the order of their names."""
    families = text_string_to_metric_families(get(address, "/metrics").text)
    found = [
        ((sample.name, *(text for _, text in sorted(sample.labels.items()))), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def answers(address: str) -> dict[tuple[str, str], int]:
    """Return the number of answers by route and class, without those of ``/metrics``."""
    return {
        (key[1], key[2]): int(value)
        for key, value in samples(address).items()
        if key[0] == ANSWERS and key[1] != "/metrics"
    }


def counted(address: str, send: Callable[[], object]) -> list[tuple[str, str]]:
    """Send one request, and return the routes and classes of what is counted then: after the answer was sent."""
    before = answers(address)
    send()
    while (after := answers(address)) == before:
        pass
    return [key for key, count in after.items() for _ in range(count - before[key])]
