"""What looks inside an unknown footer for the first time, in supervised child processes.

A mutated footer can abort the process that reads it: of 40,000 put to pyarrow's accessors 183 did, and so do valid
files with encrypted columns. So footers are examined by children that hold nothing of value, are bounded in memory and
time, and are replaced when they die; their death is a verdict on the footer, not on the harvest. It also uses every
core.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import LifoQueue
from typing import BinaryIO, Self

from catalogue.errors import BadFooter, CatalogueError, Encrypted, FormatError
from catalogue.footer import MAGIC, Footer, Order, RowGroup, decode_footer
from catalogue.table import INDEX

_ANSWER_LIMIT = 256 << 20
_TRIES = 3
"""A child that died may have been killed by somebody else; a footer that three children die of is to blame."""


@dataclass(frozen=True, slots=True)
class RowGroupFacts:
    """What the catalogue shows of a row group."""

    ordinal: int
    num_rows: int
    total_byte_size: int
    total_compressed_size: int
    min_key: str | None
    max_key: str | None
    bounds_from: str
    """``footer``, ``footer (signed)`` or ``missing``."""
    first_fetch: int | None
    """Milliseconds since 1970 before which nothing was fetched; None where the footer does not say."""
    last_fetch: int | None
    footer_offset: int
    """Where the row group stands in the footer."""


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """What the catalogue shows of a column chunk."""

    row_group: int
    column_name: str
    physical_type: str
    codec: str
    num_values: int
    null_count: int | None
    file_offset: int
    total_compressed_size: int
    total_uncompressed_size: int
    min: str | None
    """Bounds as text where they are text, else null."""
    max: str | None
    has_page_index: bool


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the catalogue shows of an index file."""

    num_rows: int
    created_by: str
    codec: str
    column_names: tuple[str, ...]
    utc_times: bool
    """Whether ``fetch_time`` is declared an instant; older writers left the zone, always UTC, to be known."""
    has_page_index: bool
    footer_rest: int | None
    """Where that stands in the footer which follows the row groups."""
    row_groups: tuple[RowGroupFacts, ...]
    column_chunks: tuple[ChunkFacts, ...]
    """Empty unless asked for: there are some 330 a file."""


def file_facts(footer: Footer, key: str = INDEX.key, *, column_chunks: bool = False) -> FileFacts:
    """Pick from a footer what the catalogue shows.

    Raises:
        BadFooter: if the column of keys is there and does not hold text.
    """
    if (column := footer.columns.get(key)) and column.physical_type != "BYTE_ARRAY":
        message = f"the column {key} holds {column.physical_type} and not text, which keys must be"
        raise BadFooter(message)
    keys = [group.chunks.get(key) for group in footer.row_groups]
    return FileFacts(
        num_rows=footer.num_rows,
        created_by=footer.created_by,
        codec="+".join(footer.codecs),
        column_names=tuple(footer.columns),
        utc_times="fetch_time" in footer.columns and footer.columns["fetch_time"].utc,
        has_page_index=bool(keys) and all(each and each.column_index and each.offset_index for each in keys),
        footer_rest=footer.rest,
        row_groups=tuple(_row_group_facts(group, key) for group in footer.row_groups),
        column_chunks=tuple(_chunk_facts(footer)) if column_chunks else (),
    )


def _row_group_facts(group: RowGroup, key: str) -> RowGroupFacts:
    chunk = group.chunks.get(key)
    bounds = chunk.bounds if chunk else None
    times = group.chunks["fetch_time"].milliseconds if "fetch_time" in group.chunks else None
    return RowGroupFacts(
        ordinal=group.ordinal,
        num_rows=group.num_rows,
        total_byte_size=group.total_byte_size,
        total_compressed_size=group.total_compressed_size,
        min_key=bounds.min.decode() if bounds else None,
        max_key=bounds.max.decode() if bounds else None,
        bounds_from="missing" if not bounds else "footer (signed)" if bounds.order is Order.SIGNED else "footer",
        first_fetch=times[0] if times else None,
        last_fetch=times[1] if times else None,
        footer_offset=group.offset,
    )


def _chunk_facts(footer: Footer) -> Iterator[ChunkFacts]:
    for group in footer.row_groups:
        for chunk in group.chunks.values():
            text = chunk.bounds if chunk.column.physical_type == "BYTE_ARRAY" else None
            yield ChunkFacts(
                row_group=group.ordinal,
                column_name=chunk.column.name,
                physical_type=chunk.column.physical_type,
                codec=chunk.codec_name,
                num_values=chunk.num_values,
                null_count=chunk.null_count,
                file_offset=chunk.range.start,
                total_compressed_size=len(chunk.range),
                total_uncompressed_size=chunk.total_uncompressed_size,
                min=text.min.decode() if text else None,
                max=text.max.decode() if text else None,
                has_page_index=bool(chunk.column_index and chunk.offset_index),
            )


class Examiner:
    """A handful of children that examine footers; safe to use from many threads."""

    def __init__(self, key: str = INDEX.key, *, children: int | None = None, seconds: float = 5.0) -> None:
        """Make room for children; each is started when first needed.

        Args:
            key: the column by which rows are found.
            children: how many at most, by default one a core.
            seconds: how long one footer may take before its child is killed.
        """
        count = children or os.cpu_count() or 1
        self._key = key
        self._seconds = seconds
        self._idle: LifoQueue[_Child | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._count = count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def examine(self, footer: bytes, file_size: int, *, column_chunks: bool = False) -> FileFacts:
        """Decode a footer in a child.

        Raises:
            BadFooter: if it cannot be decoded, or its child died or took too long.
            Encrypted: if columns are encrypted.
        """
        request = json.dumps([file_size, self._key, column_chunks]).encode() + b"\n" + footer
        fate = ""
        for _ in range(_TRIES):
            child = self._idle.get()
            try:
                child = child or _Child()
                answer = child.ask(request, self._seconds)
            except _ChildDied as death:
                fate, child = str(death), None
            except BaseException:
                if child:  # its answer may still come, and would be taken for that to the next question
                    child.kill()
                child = None
                raise
            else:
                return _facts(answer)
            finally:
                self._idle.put(child)
        message = f"the footer cannot be decoded: its parser {fate}"
        raise BadFooter(message)

    def executor(self) -> Executor:
        """Threads enough to keep every child busy."""
        return ThreadPoolExecutor(self._count, thread_name_prefix="examine")

    def close(self) -> None:
        """End the children, which hold nothing."""
        for child in [self._idle.get() for _ in range(self._count)]:
            if child:
                child.kill()
            self._idle.put(None)


class _ChildDied(Exception):
    pass


class _Child:
    def __init__(self) -> None:
        package_root = str(Path(__file__).resolve().parent.parent)
        command = f"import sys; sys.path.insert(0, {package_root!r}); from catalogue.examine import _serve; _serve()"
        # An environment without credentials: the child sees hostile bytes. The system's allocator, because the default
        # one reserves address space that the memory limit would count.
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "PATH": os.environ.get("PATH", os.defpath)}
        environment |= {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-I", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            with self._pipes() as (_, answers):
                started = answers.read(1) == b"\n"
        except BaseException:
            self.kill()
            raise
        if not started:
            self.kill()
            message = "a process to examine footers in could not be started"
            raise CatalogueError(message)

    @contextmanager
    def _pipes(self) -> Iterator[tuple[BinaryIO, BinaryIO]]:
        assert self._process.stdin  # noqa: S101 - both were asked for
        assert self._process.stdout  # noqa: S101
        yield self._process.stdin, self._process.stdout  # type: ignore[misc]  # typeshed says IO[bytes]

    def ask(self, request: bytes, seconds: float) -> bytes:
        slow = threading.Event()

        def give_up() -> None:
            slow.set()
            self._process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            with self._pipes() as (requests, answers):
                _send(requests, request)
                answer = _receive(answers)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            status = self._process.wait()
            fate = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise _ChildDied(f"took over {seconds:g} s" if slow.is_set() else f"died ({fate})")
        return answer

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        with self._pipes() as (requests, answers):
            with suppress(OSError):  # a child that died has closed its end
                requests.close()
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            answers.close()


def _facts(answer: bytes) -> FileFacts:
    kind, value = json.loads(answer)
    if kind != "facts":
        error: type[FormatError] = Encrypted if kind == "Encrypted" else BadFooter
        raise error(value)
    return FileFacts(
        **value
        | {
            "column_names": tuple(value["column_names"]),
            "row_groups": tuple(RowGroupFacts(**group) for group in value["row_groups"]),
            "column_chunks": tuple(ChunkFacts(**chunk) for chunk in value["column_chunks"]),
        }
    )


def _send(pipe: BinaryIO, message: bytes) -> None:
    pipe.write(len(message).to_bytes(4, "little") + message)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes | None:
    header = pipe.read(4)
    length = int.from_bytes(header, "little")
    if len(header) < 4 or length > _ANSWER_LIMIT:  # noqa: PLR2004
        return None
    message = pipe.read(length)
    return message if len(message) == length else None


# ---- in the child ----


def _serve() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - whatever a library prints must not reach the parent
        os.dup2(nowhere.fileno(), 1)
    import pyarrow.parquet  # noqa: F401, PLC0415 - before memory is limited

    _limit_resources()
    answers.write(b"\n")
    answers.flush()
    while request := _receive(sys.stdin.buffer):
        header, _, footer = request.partition(b"\n")
        file_size, key, column_chunks = json.loads(header)
        try:
            _check_with_pyarrow(footer)
            facts = file_facts(decode_footer(footer, file_size), key, column_chunks=column_chunks)
            answer = ("facts", asdict(facts))
        except Encrypted as error:
            answer = ("Encrypted", str(error))  # type: ignore[assignment]
        except (BadFooter, MemoryError) as error:
            answer = ("BadFooter", str(error) or "the footer claims more memory than a footer may")  # type: ignore[assignment]
        _send(answers, json.dumps(answer).encode())


def _check_with_pyarrow(footer: bytes) -> None:
    """Have the reader that will decode the pages agree that this is a footer."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    file = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC
    try:
        parsed = pq.ParquetFile(
            pa.BufferReader(file), thrift_string_size_limit=1 << 20, thrift_container_size_limit=20_000
        ).metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        message = f"pyarrow cannot decode the footer: {error}"
        kind = Encrypted if "ncrypt" in str(error) else BadFooter
        raise kind(message) from error
    if parsed.num_rows < 0:
        message = f"the footer claims {parsed.num_rows} rows"
        raise BadFooter(message)


def _limit_resources() -> None:
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    with suppress(OSError, ValueError):  # only Linux says how much is in use already
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
