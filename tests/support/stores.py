"""Stores, and other processes that use them."""

import hashlib
import json
import sqlite3
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from tests.support import processes

CRAWL = "CC-MAIN-2022-05"


def stored_file(data: bytes = b"footer", **other: Any) -> StoredFile:
    fields: dict[str, Any] = {
        "size": 1_234_567,
        "etag": '"0123456789abcdef-8"',
        "last_modified": "Mon, 31 Jan 2022 12:00:00 GMT",
        "source": "https://data.commoncrawl.org/",
        "taken": "2022-02-01T00:00:00+00:00",
    }
    return StoredFile(data=data, **(fields | other))


def path_of(number: int) -> str:
    return f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-{number:05}.c000.gz.parquet"


def batch(start: int, count: int, size: int = 2_000) -> list[tuple[str, StoredFile]]:
    """Return different values that can hardly be compressed."""
    return [(path_of(number), stored_file(Random(number).randbytes(size))) for number in range(start, start + count)]


def store_path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "footers.sqlite"


def empty_store(path: Path) -> Iterator[Store]:
    with Store(path, create=True) as store:
        yield store


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def integrity(path: Path) -> str:
    with raw(path) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


# ``ready`` prints "ready" and waits for a line of input. The script starts quickly, since it does not import pytest.
SCRIPT = """
import os, signal, sqlite3, sys
from pathlib import Path
from catalogue.errors import CatalogueError
from catalogue.store.database import Store
from tests.support.stores import batch, stored_file, path_of

path = Path(sys.argv[1])

def ready(what="ready"):
    print(what, flush=True)
    sys.stdin.readline()
"""


def run_script(path: Path, script: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return processes.run_script(path, SCRIPT + script)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def signed(body: bytes) -> bytes:
    """Return a value with a correct digest, which an attacker can compute."""
    return b"\x01" + hashlib.blake2b(body, digest_size=16).digest() + body


def value(length: object, header: object, data: bytes = b"") -> bytes:
    return signed(json.dumps([length, header]).encode() + b"\n" + zlib.compress(data))
