"""Captures in the layout of Common Crawl's index server, and pywb as their server.

The layout is that of https://data.commoncrawl.org/cc-index/collections/: sorted lines in blocks of 3,000, each a gzip
member of its own, and the first key of each block in ``cluster.idx``; the configuration is that of
commoncrawl/cc-index-server (branch ``pywb2``), except for the location of the blocks. pywb runs in its own environment:
the environment variable ``CATALOGUE_PYWB`` names its ``bin`` folder; otherwise one is created.
"""

import gzip
import os
import shutil
import socket
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import PYWB, python_of
from benchmarks.processes import Failed, Served
from catalogue.cdx.cluster import index_folder, list_path, shards_path

VARIABLE = "CATALOGUE_PYWB"
_PROGRAM = "wayback"
LINES = 3000
"""Lines of a block."""
_PART = "cdx-00000.gz"
_CONFIG = r"""
enable_auto_colls: true
cdx_api_endpoint: -index
shard_index_loc:
  match: '(.+)'
  replace: '{location}'
max_blocks: 5
framed_replay: false
map_output_fields:
  source: null
  source-coll: null
  access: null
  charset: encoding
"""
"""pywb 2.10 ignores the last setting, which belongs to Common Crawl's branch."""
_LOCAL = r"\1"
"""Location of blocks next to the list of blocks."""
_START_TIMEOUT = 60.0
"""Seconds to wait for the start."""


def write_cluster(folder: Path, crawl: str, lines: Iterable[str]) -> None:
    """Write the captures of a crawl for pywb.

    Args:
        folder: folder of all crawls of a server.
        crawl: name of the crawl.
        lines: sorted CDXJ, without line ends.
    """
    indexes = _prepare(folder, crawl, _LOCAL)
    with (indexes / _PART).open("wb") as part, (indexes / "cluster.idx").open("w", encoding="utf-8") as cluster:
        for number, (first, member) in enumerate(blocks(lines), start=1):
            cluster.write(f"{first}\t{_PART}\t{part.tell()}\t{len(member)}\t{number}\n")
            part.write(member)


def publish_cluster(clusters: Path, folder: Path, crawl: str) -> None:
    """Copy what ``write_cluster`` wrote to the paths of the CDX index in a folder laid out as data.commoncrawl.org."""
    indexes = folder / index_folder(crawl)
    shutil.copytree(clusters / "collections" / crawl / "indexes", indexes)
    shards = [f"{index_folder(crawl)}/{path.name}\n" for path in sorted(indexes.glob("cdx-*.gz"))]
    (folder / shards_path(crawl)).parent.mkdir(parents=True, exist_ok=True)
    (folder / shards_path(crawl)).write_bytes(
        gzip.compress("".join([*shards, f"{list_path(crawl)}\n"]).encode(), mtime=0)
    )


def link_cluster(folder: Path, crawl: str, listed: Path, location: str) -> None:
    """Prepare pywb for a list of blocks on this machine, and blocks elsewhere.

    Args:
        folder: folder of all crawls of a server.
        crawl: name of the crawl.
        listed: the list of blocks.
        location: URL of the folder of the blocks, with a trailing slash.
    """
    (_prepare(folder, crawl, location) / listed.name).symlink_to(listed)


def _prepare(folder: Path, crawl: str, location: str) -> Path:
    """Write the configuration of a server; return the folder for the index of a crawl."""
    (folder / "config.yaml").write_text(_CONFIG.format(location=location), encoding="utf-8")
    indexes = folder / "collections" / crawl / "indexes"
    indexes.mkdir(parents=True)
    return indexes


def blocks(lines: Iterable[str], size: int = LINES) -> Iterator[tuple[str, bytes]]:
    """Yield each block of sorted lines: key and time of its first line, and the lines as a gzip member."""
    for block in _blocks(lines, size):
        yield (
            " ".join(block[0].split(" ", 2)[:2]),
            zlib.compress("".join(f"{line}\n" for line in block).encode(), wbits=31),
        )


def _blocks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def programs() -> Path | None:
    """Return the folder that ``CATALOGUE_PYWB`` names; None if it is not set, or has no pywb."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given and (Path(given) / _PROGRAM).exists() else None


def installed() -> Path:
    """Return the folder of pywb's programs; install pywb if ``CATALOGUE_PYWB`` is not set.

    Raises:
        Failed: if pywb cannot be installed.
    """
    return programs() or python_of(PYWB).parent


@contextmanager
def pywb(folder: Path, bin_folder: Path) -> Iterator[Served]:
    """Serve a folder of ``write_cluster`` on a free local port.

    Raises:
        Failed: if it does not start.
    """
    port = _free_port()
    command = [str(bin_folder / _PROGRAM), "-b", "127.0.0.1", "-p", str(port), "-d", str(folder)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(process, port, folder / "log")
            yield Served(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    message = f"pywb does not start: {log.read_text(errors='replace')[-2000:]}"
    raise Failed(message)
