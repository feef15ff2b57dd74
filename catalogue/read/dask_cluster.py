"""Clusters of Dask."""

import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from catalogue.errors import QueryError, Unreachable
from catalogue.formatting import without_secrets
from catalogue.settings import needing, package_version

_ADDRESS = re.compile(r"(?:tcp|tls|ws|wss|ucx)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(?:/\S*)?")
_PATIENCE = 10.0
"""Seconds to wait for a scheduler."""
_THREADS = 8
"""Concurrent tasks of other executors that do not state them."""


@contextmanager
def connect_to_cluster(address: str, *, patience: float = _PATIENCE) -> Iterator[Executor]:
    """Yield the workers of a Dask cluster as an executor.

    ``address`` is such as ``tcp://host:8786``, ``patience`` in seconds.

    Raises:
        QueryError: if Dask is not installed, or the address is invalid.
        Unreachable: if no scheduler answers.
    """
    with needing("dask", "a scheduler"):
        from distributed import Client  # noqa: PLC0415 - an extra, and slow to import
    if not _ADDRESS.fullmatch(address):
        message = f"invalid address of a scheduler {without_secrets(address)!r}; use one such as tcp://host:8786"
        raise QueryError(message)
    try:
        client: Any = Client(address, timeout=patience, set_as_default=False)
    except OSError as error:  # TimeoutError among them
        raise Unreachable(f"no scheduler answers at {address}: {error}") from error
    try:
        _check_versions(client)
        yield client.get_executor(pure=False)  # the same question may be asked again
    finally:
        client.close()


def _check_versions(client: Any) -> None:  # noqa: ANN401 - a class without types
    try:
        versions = set(client.run(package_version).values()) - {package_version()}
    except Exception as error:  # Dask has no class of its own for it
        raise QueryError(
            f"workers of this cluster lack this package ({error}); install commoncrawl-catalogue where they run, too"
        ) from error
    if versions:
        raise QueryError(
            f"workers of this cluster have version {', '.join(versions)} of this package; here is {package_version()}"
        )


def machines_and_tasks(executor: Executor) -> tuple[int, int]:
    """Return the numbers of machines and of concurrent tasks of an executor.

    Only Dask's executors state their machines.
    """
    client = getattr(executor, "_client", None)  # Dask's says nothing of its workers itself
    if client is None:
        return 1, getattr(executor, "_max_workers", _THREADS)
    threads: dict[str, int] = client.nthreads()
    machines = {urlsplit(address).hostname for address in threads}
    return max(1, len(machines)), max(1, sum(threads.values()))


def client_machines() -> int:
    """Return the machines of the current Dask client; 1 without a client."""
    try:
        from distributed import get_client  # noqa: PLC0415 - see above

        return machines_and_tasks(get_client().get_executor())[0]
    except (ImportError, ValueError):
        return 1
