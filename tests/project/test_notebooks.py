"""The notebooks run as they stand, in a kernel whose event loop is running; they show outputs of the miniature."""

import ast
import json
import os
import re
import runpy
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

import catalogue
from catalogue.demo import Miniature
from catalogue.surt import url_surtkeys
from tests.support.amounts import in_part
from tests.support.lakes import needs_extensions
from tests.support.miniatures import keep_in

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> tuple[Any, list[Any]]:
    """A notebook, and those of its cells that are code."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


# ---- as they stand ----


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebooks_name_no_machine(path: Path) -> None:
    _, code = read(path)
    nodes = [node for cell in code for node in ast.walk(ast.parse(cell.source))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.startswith("catalogue")} == {"catalogue"}
    names = {(ast.unparse(node.value), node.attr) for node in nodes if isinstance(node, ast.Attribute)}
    assert {name for of, name in names if of == "catalogue"} <= {*catalogue.__all__}
    assert not [name for _, name in names if name.startswith("_")]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [text for text in texts if re.match(r"/\w|[A-Za-z]:[\\/]|~", text)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_outputs_match_the_code(path: Path) -> None:
    notebook, code = read(path)
    digest: str = runpy.run_path(str(FOLDER / "execute.py"))["code_digest"](notebook)
    assert notebook.metadata.get("code_digest") == digest, "run: make notebooks"
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert not re.findall(r"/(?:home|root|tmp|work|Users|var)/\w+", json.dumps(outputs))


# ---- executed ----


def test_every_notebook_has_a_test() -> None:
    """Else one that has another name would run, and nobody look at what it found."""
    assert [path.stem for path in PATHS] == ["01-first-look", *LOOKED_AT]


@dataclass(frozen=True)
class Truth:
    """What a crawl holds, as DuckDB finds by reading all of it."""

    mirror: Path
    crawl: str
    crawls: tuple[str, ...]
    """Some, oldest first."""

    def rows(self, select: str, where: str = "true") -> list[tuple[Any, ...]]:
        files = f"'{self.mirror}/cc-index/table/*/*/*/*/*.parquet', hive_partitioning = true, union_by_name = true"
        with duckdb.connect(config={"threads": 1}) as connection:
            return connection.execute(f"SELECT {select} FROM read_parquet({files}) WHERE {where}").fetchall()  # noqa: S608 - our own

    def of_site(self, select: str, where: str = "true") -> list[tuple[Any, ...]]:
        return self.rows(select, rf"regexp_matches(url_host_name, '(^|\.)example\.com$') AND {where}")


def pruned(reported: Any, truth: Truth) -> None:
    of = f"crawl = '{truth.crawl}' AND subset = 'warc'"
    ((captures, files),) = truth.of_site("count(*), count(DISTINCT filename)", of)
    ((there,),) = truth.rows("count(DISTINCT filename)", of)
    assert (reported["captures"], reported["all"]["files"]) == (captures, there)
    assert files <= reported["left"]["files"] <= there
    assert reported["left"]["row groups"] < reported["all"]["row groups"]
    assert reported["made"] <= reported["planned"]


def through_time(reported: Any, truth: Truth) -> None:
    requested = f"crawl IN {truth.crawls} AND subset"
    assert reported["captures"] == dict(truth.of_site("crawl, count(*)", f"{requested} = 'warc' GROUP BY crawl"))
    kinds = truth.of_site("crawl, fetch_status // 100 || 'xx', count(*)", f"{requested} <> 'robotstxt' GROUP BY ALL")
    languages = truth.of_site(
        "crawl, split_part(content_languages, ',', 1), count(*)",
        f"{requested} = 'warc' AND content_languages IS NOT NULL GROUP BY ALL",
    )
    for shares, counts in ((reported["status"], kinds), (reported["languages"], languages)):
        assert set(shares) == {crawl for crawl, _, _ in counts}
        for crawl, found in shares.items():
            of = {kind: count for each, kind, count in counts if each == crawl}
            assert len(found) > 1
            for name, share in found.items():
                assert share == pytest.approx(of.get(name.split()[0], 0) / sum(of.values()))


def sampled(reported: Any, truth: Truth) -> None:
    of = f"crawl = '{truth.crawl}' AND subset = 'warc'"
    assert reported["rows"] == truth.rows("count(*)", of)[0][0]
    assert reported["same"] == [True, False]
    stored = []
    for column, expression in (
        ("content_languages", "split_part(content_languages, ',', 1)"),
        ("url_host_tld", "url_host_tld"),
        ("content_mime_detected", "content_mime_detected"),
    ):
        true = dict(truth.rows(f"coalesce({expression}, 'none'), count(*)", f"{of} GROUP BY ALL"))
        table = reported["shares"][column]
        assert sum(row["found"] for row in table.values()) == 200
        for row in table.values():
            for end in (row["low"], row["high"]):  # where the share is as far off as 95% of samples allow
                assert abs(row["found"] / 200 - end) == pytest.approx(1.96 * (end * (1 - end) / 200) ** 0.5)
        shares = {value: found / reported["rows"] for value, found in true.items() if found > 0.02 * reported["rows"]}
        stored += [
            value in table and table[value]["low"] <= share <= table[value]["high"] for value, share in shares.items()
        ]
    assert sum(stored) >= 0.9 * len(stored)


def linked(reported: Any, truth: Truth) -> None:
    pages = []
    for name, offset, length in reported["chosen"]:
        with (truth.mirror / name).open("rb") as archive:
            archive.seek(offset)
            pages.append(zlib.decompress(archive.read(length), wbits=31))
    assert len(pages) == reported["pages"] == 20
    assert reported["links"] == sum(len(re.findall(rb"<a\s", page)) for page in pages)
    assert reported["words"] > 0


def joined(reported: Any, truth: Truth) -> None:
    counts = dict(truth.rows("url_surtkey, count(*)", f"crawl IN {truth.crawls} AND subset = 'warc' GROUP BY ALL"))
    assert len(reported["captures"]) > 20
    for url, captures in reported["captures"]:
        assert captures == sum(counts.get(key, 0) for key in url_surtkeys(url)), url
    assert reported["complete"]
    assert {*reported["never"]} == {url for url, captures in reported["captures"] if not captures}
    assert "https://never.invalid/" in reported["never"]


def from_the_lake(reported: Any, truth: Truth) -> None:
    of = f"crawl = '{truth.crawl}' AND subset = 'warc'"
    ((captures, keys, files),) = truth.of_site("count(*), count(DISTINCT url_surtkey), count(DISTINCT filename)", of)
    assert (reported["same"], reported["captures"], reported["keys"]) == ([True] * 6, captures, keys)
    ((there,),) = truth.rows("count(DISTINCT filename)", of)
    assert files <= reported["opened"] < reported["there"] == there


LOOKED_AT: dict[str, tuple[Callable[[Any, Truth], None], dict[str, str]]] = {
    "02-how-pruning-works": (
        pruned,
        {
            "captures": "rows",
            "all": "steps['all'].to_dict()",
            "left": "steps['left'].to_dict()",
            "made": "made",
            "planned": "found.plan.requests",
        },
    ),
    "03-one-site-through-time": (
        through_time,
        {
            "captures": "by_crawl['captures'].to_dict()",
            "status": "status.to_dict('index')",
            "languages": "languages.to_dict('index')",
        },
    ),
    "04-a-sampled-piece-of-the-web": (
        sampled,
        {
            "rows": "sample.rows",
            "same": "[smaller.equals(drawn.head(SIZE // 4)), other.equals(smaller)]",
            "shares": "{column: table.to_dict('index') for column, table in shares.items()}",
        },
    ),
    "05-text-and-links": (
        linked,
        {
            "chosen": "chosen[['warc_filename', 'warc_record_offset', 'warc_record_length']].values.tolist()",
            "pages": "len(pages)",
            "links": "len(follow)",
            "words": "int(frequent.sum())",
        },
    ),
    "06-the-same-from-ducklake": (
        from_the_lake,
        {
            "same": "(answers['lake'] == answers['catalogue']).tolist()",
            "captures": "answers.loc['captures', 'lake']",
            "keys": "answers.loc['keys', 'lake']",
            "opened": "opened",
            "there": "there",
        },
    ),
    "07-which-links-are-archived": (
        joined,
        {
            "captures": "archived[['input_url', 'captures']].values.tolist()",
            "never": "never.to_pandas()['input_url'].tolist()",
            "complete": "never.complete",
        },
    ),
}
"""Who compares what a notebook found with the truth, and where that stands when it has run."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def truth(home: Path, miniature: Miniature) -> Truth:
    mirror = keep_in(home / ".cache/catalogue", miniature)
    oldest, crawl, newest = sorted(path.name for path in (mirror / "crawl-data").iterdir())
    return Truth(mirror, crawl, (oldest, crawl, newest))


@pytest.fixture(scope="module")
def kernel(truth: Truth, home: Path) -> Iterator[KernelManager]:
    """One for all notebooks, because its start and imports take longer than most of them. It has no setting."""
    assert truth.mirror.is_relative_to(home)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(FOLDER.parent)}
    manager = KernelManager()
    manager.start_kernel(env=environment, cwd=str(home))
    yield manager
    manager.shutdown_kernel(now=True)


def execute(notebook: Any, kernel: KernelManager, *, allow_errors: bool = False) -> None:
    client = NotebookClient(notebook, km=kernel, timeout=120, allow_errors=allow_errors)
    try:
        client.execute()
    finally:
        if client.kc:
            client.kc.stop_channels()


@in_part(9)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[needs_extensions] if "ducklake" in path.stem else []) for path in PATHS],
    ids=lambda path: path.stem,
)
def test_notebooks_run(path: Path, kernel: KernelManager, truth: Truth, tmp_path: Path) -> None:
    notebook, code = read(path)
    compare, found = LOOKED_AT.get(path.stem, (None, {}))
    begin = f"%reset -f\nimport os\nos.chdir({str(tmp_path)!r})\ndel os"
    values = ", ".join(f"{name!r}: {value}" for name, value in found.items())
    end = f"import json\nprint(json.dumps({{{values}}}))"
    first, last = (nbformat.v4.new_code_cell(source) for source in (begin, end))  # type: ignore[no-untyped-call]
    notebook.cells = [first, *notebook.cells, last]
    execute(notebook, kernel)
    outputs = [output for cell in code for output in cell.outputs]
    shown = [output for output in outputs if output.output_type == "execute_result"]
    assert len(shown) >= 4
    images = [output for output in outputs if {"image/png", "image/svg+xml"} & {*output.get("data", ())}]
    assert images or path.stem.startswith("01")
    assert not [output for output in outputs if output.get("name") == "stderr"]
    if compare:
        compare(json.loads(last.outputs[0].text), truth)


CELLS = """
%reset -f
import os
import catalogue
cat = catalogue.open("magic", source="demo")
cat.harvest("CC-MAIN-2022-05")
%load_ext catalogue
found = cat.captures("*.example.com", columns="url")
lazy = cat.scan("*.example.com")
---
%catalogue select crawl, files_harvested > 0 as stored from crawls where files_harvested > 0
---
%%catalogue
select count(*) as captures from found
---
%%catalogue cat
select count(*) as captures from lazy join crawls using (crawl)
where fetch_status = 200
---
int(_["captures"][0]), found.count()
---
%%catalogue nothing
from crawls
---
%catalogue
---
%catalogue select nothing from crawls
---
other = catalogue.open("other", source="demo")
%catalogue from crawls
---
del cat, other
%catalogue from crawls
"""


def test_cells_of_sql_run(kernel: KernelManager, truth: Truth, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(cell.strip("\n")) for cell in CELLS.split("---\n")]  # type: ignore[no-untyped-call]
    cells[0].source = f"import os\nos.chdir({str(tmp_path)!r})\n{cells[0].source}"
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    execute(notebook, kernel, allow_errors=True)
    results = [
        output.data["text/plain"] for cell in cells for output in cell.outputs if output.output_type == "execute_result"
    ]
    ((captures, good),) = truth.of_site(
        "count(*), count(*) FILTER (fetch_status = 200)", f"crawl = '{truth.crawl}' AND subset = 'warc'"
    )
    assert truth.crawl in results[0]
    assert [result.split()[-1] for result in results[1:3]] == [str(captures), str(good)]
    assert results[3] == f"({good}, {captures})"
    errors = [output.evalue for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert errors == [
        "there is no catalogue nothing; write cat = catalogue.open(), then %%catalogue",
        "no SQL; write some after %catalogue, or below %%catalogue, such as: from crawls",
        errors[2],
        "there are several catalogues: cat, other; name one, such as: %%catalogue cat",
        "there is no catalogue; write cat = catalogue.open(), then %%catalogue",
    ]
    assert 'Referenced column "nothing" not found' in errors[2]
