"""Receipts of answers: each changed byte of answer, receipt or source is found."""

import hashlib
import json
import os
import shlex
from pathlib import Path
from shutil import copytree, ignore_patterns

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.check.receipt import check_answer, check_source, read_receipt
from catalogue.errors import FormatError, QueryError
from catalogue.output.ledger import Ledger
from tests.conftest import once
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import table
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.memory import memory_below
from tests.support.rot import flip


@pytest.fixture(scope="module")
def answered(mirror: Path, crawl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query of both indexes with its receipt, and a copy of the index that tests may change."""

    def make(folder: Path) -> Path:
        copytree(mirror, folder / "source", ignore=ignore_patterns("*.warc.gz"))
        run = command_of(folder)
        assert run("harvest", "--crawl", crawl).status == 0
        words = ("query", "*.com", "--index", "columnar", "--columns", "url", "-o", "found.jsonl")
        ran = run(*words, "--receipt", "found.receipt")
        assert ran.status == 0, ran.err
        return folder

    return once(tmp_path_factory, "answered", make)


def command_of(folder: Path) -> Command:
    return Command(folder / "data", str(folder / "source"), folder)


@pytest.mark.parametrize(
    "words",
    [
        ["query", "*.com", "-o", "a.jsonl", "--receipt", "no/r"],
        ["get", "example.com", "--save", "a.html", "--receipt", "no/r"],
        ["get", "example.com", "--save", "no/a.html"],
    ],
)
def test_missing_folders_are_reported_before_any_request(mirror: Path, tmp_path: Path, words: list[str]) -> None:
    with FaultServer(mirror) as server:
        ran = Command(tmp_path / "data", server.url, tmp_path)(*words)
        assert server.requests == 0
    assert (ran.status, ran.out, ran.err) == (
        2,
        "",
        "catalogue: there is no folder no to write to; make it, or choose another name\n",
    )
    assert not any(tmp_path.iterdir())


def test_receipt_names_each_range_that_was_read(mirror: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(mirror) as server:
        run = Command(tmp_path / "data", server.url, tmp_path)
        assert run("harvest", "--crawl", crawl).status == 0
        before = len(server.log)
        assert run("query", "*.com", "--columns", "url", "-o", "a.jsonl", "--receipt", "a.receipt").status == 0
        sent = {(each.path, each.range_header) for each in server.log[before:]}
        read = read_receipt(tmp_path / "a.receipt")
        recorded = [each for each in read.reads if each.reason != "stored footer"]
        assert {(each.path, f"bytes={each.start}-{each.end - 1}") for each in recorded} == sent
        again = len(server.log)
        verified = run("verify", "a.receipt", "--read-source")
        assert (verified.status, verified.err) == (0, "")
        assert len(server.log) - again == len(read.reads)
    for each in read.reads:
        content = (mirror / each.path).read_bytes()
        assert hashlib.sha256(content[each.start : each.end]).hexdigest() == each.sha256
        assert len(content) == each.size
    assert read.query["patterns"] == ["*.com"]
    footers = {each.path for each in read.reads if each.reason == "stored footer"}
    assert {each.path for each in recorded if each.path.endswith(".parquet")} <= footers


def test_verifies_files_with_any_name(tmp_path: Path) -> None:
    name, run = "my files/part é 1%.parquet", command_of(tmp_path)
    (tmp_path / "source/my files").mkdir(parents=True)
    pq.write_table(table(["com,example)/"]), tmp_path / "source" / name)
    run("harvest", "--table", "mine", "--key", "url_surtkey", name)
    run("query", "*.com", "--table", "mine", "-o", "a.jsonl", "--receipt", "r")
    assert (run("verify", "r", "--read-source").status, name in (tmp_path / "r").read_text()) == (0, True)


def test_receipt_of_a_page_has_the_stored_footers(
    asking: Command, mirror: Path, crawl: str, all_rows: pa.Table
) -> None:
    names = ("url", "crawl", "subset", "fetch_status", "warc_filename")
    rows = zip(*(all_rows[name].to_pylist() for name in names), strict=True)
    url = next(url for url, *of, name in rows if of == [crawl, "warc", 200] and (mirror / name).exists())
    os.mkfifo(asking.home / "pipe")
    (asking.home / "page").symlink_to("aside")
    with os.fdopen(os.open(asking.home / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        ran = asking("get", url, "--crawl", crawl, "--save", "page", "--receipt", "pipe")
        assert (ran.status, (asking.home / "page").is_symlink()) == (0, True), ran.err
        (asking.home / "page.receipt").write_bytes(pipe.read())
    reads = read_receipt(asking.home / "page.receipt").reads
    footers = {each.path for each in reads if each.reason == "stored footer"}
    read = {each.path for each in reads if each.path.endswith(".parquet") and each.reason != "stored footer"}
    assert footers >= read > set()


@given(place=st.integers(0, 1 << 30))
def test_finds_each_changed_byte_of_the_answer(answered: Path, place: int) -> None:
    receipt, answer, changed = (answered / f"{name}" for name in ("found.receipt", "found.jsonl", "changed.jsonl"))
    content = answer.read_bytes()
    changed.write_bytes(flip(content, place % (8 * len(content))))
    assert check_answer(read_receipt(receipt), changed)
    assert check_answer(read_receipt(receipt), answer) is None


@given(place=st.integers(0, 1 << 30), cut=st.booleans())
def test_finds_each_changed_byte_of_the_receipt(answered: Path, place: int, *, cut: bool) -> None:
    content, changed = (answered / "found.receipt").read_bytes(), answered / "changed.receipt"
    changed.write_bytes(content[: place % len(content)] if cut else flip(content, place % (8 * len(content))))
    with pytest.raises(FormatError):
        read_receipt(changed)


@given(st.data())
def test_finds_each_changed_byte_of_the_source(answered: Path, data: st.DataObject) -> None:
    receipt = read_receipt(answered / "found.receipt")
    read = data.draw(st.sampled_from(receipt.reads))
    file = answered / "source" / read.path
    content = file.read_bytes()
    file.write_bytes(flip(content, data.draw(st.integers(8 * read.start, 8 * read.end - 1))))
    try:
        with catalogue_in(answered, answered / "source") as cat:
            found = list(check_source(receipt, cat.session))
    finally:
        file.write_bytes(content)
    assert len(found) >= 1
    assert all(each.startswith(read.path) and "was changed" in each for each in found)


def test_a_damaged_response_is_no_change(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    def second(request: Request) -> Fault | None:
        """Damage the first response after the query."""
        return Fault(Kind.FLIPPED_BIT) if request.attempt == 1 and "/cdx-" in request.path else None

    with FaultServer(whole_mirror, script=second) as server:
        run = Command(tmp_path / "data", server.url, tmp_path)
        words = ("query", "example.com", "--crawl", crawl, "--index", "cdx", "-o", "a.jsonl")
        assert run(*words, "--receipt", "a.receipt").status == 0
        assert run("verify", "a.receipt", "--read-source").status == 0
        assert any(each.fault for each in server.settle())


def test_reports_files_of_another_length_or_missing_and_another_answer(answered: Path) -> None:
    receipt, run = read_receipt(answered / "found.receipt"), command_of(answered)
    file = answered / "source" / receipt.reads[0].path
    content = file.read_bytes()
    changes = [(content + b"more", "and the receipt "), (None, "no longer exists")]
    changes += [(content[:length], "shorter") for length in (0, receipt.reads[0].start, receipt.reads[0].end - 1)]
    try:
        for changed, message in changes:
            file.unlink(missing_ok=True)
            if changed is not None:
                file.write_bytes(changed)
            ran = run("verify", "found.receipt", "--read-source")
            assert ran.status == 1
            assert message in ran.err
    finally:
        file.write_bytes(content)
    assert run("verify", "found.receipt", "--read-source").status == 0
    assert run("verify", "found.receipt", "--json").json()["valid"] is True
    (answered / "other.jsonl").write_bytes((answered / "found.jsonl").read_bytes() + b"\n")
    ran = run("verify", "found.receipt", "--answer", "other.jsonl")
    assert ran.status == 1
    assert "other.jsonl has " in ran.err


def test_names_the_option_that_reads_the_source_of_a_receipt(
    answered: Path, mirror: Path, crawl: str, tmp_path: Path
) -> None:
    odd = Path(copytree(answered / "source", tmp_path / "it's odd %41"))
    there = Command(tmp_path / "data", str(odd), tmp_path)
    asked = ("query", "example.com", "--crawl", crawl, "--index", "columnar", "-o", "found.jsonl")
    assert there("harvest", "--crawl", crawl).status == 0
    assert there(*asked, "--receipt", "found.receipt").status == 0
    here = Command(there.data, str(mirror), tmp_path)
    ran = here("verify", "found.receipt", "--read-source")
    (place,) = shlex.split(ran.err.partition("run the same command with --source ")[2])
    assert (ran.status, Path(place)) == (2, odd)
    ran = here("verify", "found.receipt", "--read-source", "--source", place)
    assert (ran.status, ran.err) == (0, "")


def sealed(*lines: str) -> bytes:
    content = "\n".join([*lines, ""]).encode()
    return content + f'{{"sha256": "{hashlib.sha256(content).hexdigest()}"}}\n'.encode()


HEAD = (
    '{"receipt": 1, "ranges": RANGES, "query": {}, "created": "", "incomplete": [], '
    '"answer": {"file": "a", "bytes": 1, "sha256": ""}}'
)
HUGE = f'"end": 1, "size": 1{"0" * 400}'
RANGE = f'{{"path": "a", "start": 0, {HUGE}, "etag": null, "sha256": "{"0" * 64}", "reason": "", "source": ""}}'
VALID = RANGE.replace(HUGE, '"end": 1, "size": 1')
WRONG = {
    '"start": 0': '"start": -1',
    '"end": 1,': '"end": 99,',
    '"path": "a"': '"path": "../x"',
    "0" * 64: "0",
    '"source": ""': '"source": null',
}


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD.replace('"bytes": 1', '"bytes": Infinity')],
        [HEAD.replace('"bytes": 1', '"bytes": 1e999')],
        ["[" * 100_000],
        [HEAD.replace("{}", f'{{"x": {"[" * 100_000}{"]" * 100_000}}}')],
        [HEAD.replace("{}", '{"x": "\\ud800"}')],
        *([HEAD.replace('"a"', f'"{name}"')] for name in ("\\u0000", "", ".", "../a", "\\ud800")),
        *([head] for head in ('{"receipt": 2}', '{"receipt": 1, "ranges": 1}', "[]")),
        [HEAD.replace('"query": {}', '"query": 3')],
        *([HEAD.replace("RANGES", "1"), VALID.replace(right, wrong)] for right, wrong in WRONG.items()),
        [HEAD.replace("RANGES", "1"), RANGE],
        [HEAD.replace("RANGES", "1"), RANGE.replace('"end": 1,', f'"end": 1{"0" * 400},')],
    ],
)
def test_malformed_receipts_are_reported(command: Command, lines: list[str]) -> None:
    """Also those that no JSON library writes, and whose last line is right."""
    (command.home / "a").write_bytes(b"a")
    (command.home / "r").write_bytes(sealed(*(line.replace("RANGES", "0") for line in lines)))
    for words in (["verify", "r"], ["verify", "r", "--json"]):
        ran = command(*words)
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "catalogue: r is not a receipt: " in ran.err


def test_text_of_a_receipt_is_no_command_and_does_not_change_the_terminal(command: Command) -> None:
    """A stranger has chosen the source and the name of the answer."""
    source, name = "https://a.example/'; touch made; '\x1b[2J\n", "a\x1b[2J"
    read = VALID.replace('"source": ""', f'"source": {json.dumps(source)}')
    head = HEAD.replace("RANGES", "1").replace('"file": "a"', f'"file": {json.dumps(name)}')
    head = head.replace('"sha256": ""', f'"sha256": "{hashlib.sha256(b"a").hexdigest()}"')
    (command.home / "r").write_bytes(sealed(head, read))
    (command.home / name).write_bytes(b"a")
    ran = command("verify", "r")
    assert (ran.status, "\x1b" in ran.out) == (0, False)
    assert ran.out.startswith("a\N{REPLACEMENT CHARACTER}[2J matches its receipt\n")
    ran = command("verify", "r", "--read-source")
    assert (ran.status, ran.err.count("\n"), "\x1b" in ran.err) == (2, 1, False)
    (proposed,) = shlex.split(ran.err.partition("run the same command with --source ")[2])
    assert proposed == source.replace("\x1b", "\N{REPLACEMENT CHARACTER}").replace("\n", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("words", [["verify", "PIPE"], ["verify", "r", "--answer", "PIPE"]])
def test_pipes_and_devices_are_refused_at_once(command: Command, words: list[str]) -> None:
    os.mkfifo(command.home / "pipe")
    (command.home / "r").write_bytes(sealed(HEAD.replace("RANGES", "0")))
    for name in ("pipe", "/dev/zero"):
        ran = command(*(name if word == "PIPE" else word for word in words))
        message = "is a pipe or a device, not a file; save its content to a file first"
        assert (ran.status, ran.err) == (2, f"catalogue: {name} {message}\n")


def test_millions_of_line_feeds_take_little_memory(command: Command) -> None:
    line_feeds = b"\n" * (8 << 20)
    (command.home / "r").write_bytes(sealed(line_feeds[1:].decode()))
    (command.home / "x.jsonl.ledger").write_bytes(line_feeds)
    with memory_below(16 << 20):
        with pytest.raises(FormatError):
            read_receipt(command.home / "r")
        with pytest.raises(QueryError, match="cannot be read as a ledger"):
            Ledger(command.home / "x.jsonl.ledger", {})
