"""Fixtures for many tests: a mirror of a crawl, and a catalogue harvested from it."""

import atexit
import gc
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from shutil import copy2, copytree, rmtree
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from hypothesis import settings as trying

import catalogue
from catalogue.demo import LoopbackServer, Miniature
from catalogue.settings import Settings
from tests.support import canaries
from tests.support.amounts import EXAMPLES, leave_for_soak
from tests.support.commands import Command
from tests.support.crawls import write_manifest
from tests.support.miniatures import written_once
from tests.support.mirrors import whole_table

_Made = TypeVar("_Made")

_IN_SOAK = pytest.StashKey[int]()
_NUMBERS = count()

LEAKED: list[str] = []
"""Log messages that contain a secret, and connections to other machines."""


_LONG = {
    *("test_access_log", "test_cli", "test_column_values", "test_disk", "test_faults", "test_index_choice"),
    *("test_installed", "test_join", "test_join_again", "test_one_answer", "test_output_folder", "test_same_name"),
    *("test_second_host", "test_slow"),
}
"""Files that take longest."""


def pytest_collection() -> None:
    """Let each of several workers import other tests first, so that all are compiled once."""
    gc.disable()  # imports leave no garbage
    number, count = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))[int(number[2:]) :: count] if count > 1 else ():
        import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that no core waits for another at the end."""
    in_soak = leave_for_soak(items)
    config.hook.pytest_deselected(items=in_soak)
    if hasattr(config, "workeroutput"):  # one of several processes
        config.workeroutput["in_soak"] = len(in_soak)
    items.sort(key=lambda item: item.path.stem not in _LONG)


def pytest_collection_finish() -> None:
    gc.freeze()
    atexit.register(gc.unfreeze)  # Python 3.14 keeps frozen objects; DuckDB's abort it after its end
    gc.set_threshold(20_000)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_soak: runs in make soak only")
    config.addinivalue_line(
        "markers", "in_part(every): the first of its parameters, and each n-th, run in make test, too"
    )
    # The duration of a test depends on other processes.
    trying.register_profile("suite", trying(), max_examples=EXAMPLES, deadline=None)
    trying.load_profile("suite")
    canaries.watch(LEAKED.append)
    canaries.stay_at_home(LEAKED.append)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_IN_SOAK] = getattr(node, "workeroutput", {}).get("in_soak", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if number := terminalreporter.config.stash.get(_IN_SOAK, 0):
        terminalreporter.write_line(f"{number} more tests run in make soak")


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replaces that of pytest, which looks for a free name among the folders of all tests before."""
    folder = tmp_path_factory.getbasetemp() / f"test{next(_NUMBERS)}"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _discreet() -> Iterator[None]:
    """Fail a test during which a secret was logged, or that connected to another machine."""
    yield
    leaked = LEAKED[:3]
    LEAKED.clear()
    assert not leaked


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], _Made]) -> _Made:
    """Return what the first worker made in a folder; all others read it."""
    root = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder, made = root / name, root / f"{name}.pickle"
    with FileLock(root / f"{name}.lock"):
        if not made.exists():
            rmtree(folder, ignore_errors=True)
            folder.mkdir()
            made.write_bytes(pickle.dumps(make(folder)))
        found: _Made = pickle.loads(made.read_bytes())  # noqa: S301 - our own
    return found


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Miniature:
    """The default miniature, which no test changes."""
    return once(tmp_path_factory, "miniature", written_once)


@pytest.fixture(scope="session")
def whole_mirror(request: pytest.FixtureRequest) -> Path:
    """A folder laid out as data.commoncrawl.org: CATALOGUE_TEST_MIRROR, else the miniature."""
    if given := os.environ.get("CATALOGUE_TEST_MIRROR"):
        return Path(given)
    made: Miniature = request.getfixturevalue("miniature")
    return made.folder


@pytest.fixture(scope="session")
def mirror(whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of each crawl and subset, with the keys of example.com, and all records; or the complete miniature."""
    if "CATALOGUE_TEST_MIRROR" not in os.environ:
        return whole_mirror
    return once(tmp_path_factory, "mirror", partial(copy_some, whole_mirror))


def copy_some(whole: Path, folder: Path) -> Path:
    def lacks(path: Path) -> bool:
        keys = pq.ParquetFile(path).read(columns=["url_surtkey"]).column(0)
        return not pc.any(pc.starts_with(keys, "com,example)")).as_py()

    for path in whole.iterdir():
        if path.is_file():
            copy2(path, folder)
    for subset in whole.glob("cc-index/table/cc-main/warc/crawl=*/subset=*"):
        there = folder / subset.relative_to(whole)
        there.mkdir(parents=True)
        for path in sorted(sorted(subset.glob("*.parquet")), key=lacks)[:2]:
            copy2(path, there)
    for crawl in whole.glob("crawl-data/*"):
        copytree(crawl, folder / "crawl-data" / crawl.name)
        write_manifest(folder, crawl.name)
    return folder


@pytest.fixture(scope="session")
def all_rows(mirror: Path) -> pa.Table:
    return whole_table(mirror)


@pytest.fixture(scope="session")
def settings(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(source=str(mirror), cache=tmp_path_factory.mktemp("cache"))


def harvest_all(settings: Settings, data: Path) -> Path:
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest("all", subsets="all")
    return data


@pytest.fixture(scope="session")
def untaught_data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every crawl and subset of the mirror; to be copied, since queries change it."""
    return once(tmp_path_factory, "untaught", partial(harvest_all, settings))


@pytest.fixture(scope="session")
def whole_data(whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with footers of every crawl and subset of the whole mirror; to be copied."""
    return once(tmp_path_factory, "whole", partial(harvest_all, Settings(source=str(whole_mirror))))


@pytest.fixture(scope="session")
def both_data(whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every crawl of the whole mirror, page indexes and lists of blocks; to be copied."""

    def make(folder: Path) -> Path:
        with catalogue.open(folder, settings=Settings(source=str(whole_mirror))) as cat:
            cat.harvest("all", subsets="all", index="both", pages=True)
        return folder

    return once(tmp_path_factory, "both", make)


@pytest.fixture(scope="session")
def harvested_data(untaught_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy for queries, which no test writes to."""
    return Path(copytree(untaught_data, tmp_path_factory.mktemp("harvested") / "data"))


@pytest.fixture
def data(untaught_data: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(copytree(untaught_data, tmp_path / "data"))


@pytest.fixture(scope="session")
def whole_crawls(mirror: Path) -> list[str]:
    """The crawls that have all subsets, oldest first; at least two."""
    paths = mirror.rglob("crawl=*/subset=crawldiagnostics")
    return sorted({path.parent.name.removeprefix("crawl=") for path in paths})


@pytest.fixture(scope="session")
def crawl(mirror: Path) -> str:
    """The crawl of 2022, whose records are in the mirror."""
    (found,) = {path.parts[-5] for path in mirror.rglob("crawl-data/CC-MAIN-2022-*/segments/*/warc/*.warc.gz")}
    return found


@pytest.fixture(scope="session")
def harvested(
    untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[catalogue.Catalogue]:
    """An open catalogue, so that footers are decoded once.

    Its folder is not copied while it is open: a process that closes a file loses all its locks on it, SQLite's among
    them (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("open") / "data"))
    with catalogue.open(data, settings=settings) as cat:
        yield cat


@pytest.fixture
def server(mirror: Path) -> Iterator[LoopbackServer]:
    """A server of the mirror, which logs requests."""
    with LoopbackServer(mirror) as running:
        yield running


@pytest.fixture
def command(mirror: Path, tmp_path: Path) -> Command:
    """The command line with an empty data folder, and the mirror's folder as its source."""
    return Command(tmp_path / "data", str(mirror), tmp_path)


@pytest.fixture
def stored(data: Path, mirror: Path, tmp_path: Path) -> Command:
    """The command line with a copy of everything harvested, which a test may change."""
    return Command(data, str(mirror), tmp_path)


@pytest.fixture
def asking(harvested_data: Path, mirror: Path, tmp_path: Path) -> Command:
    """The command line where everything is harvested."""
    return Command(harvested_data, str(mirror), tmp_path)
