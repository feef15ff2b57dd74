"""Open an output and its format: continue it, or begin it where nothing else is."""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, TypeAlias

from catalogue.atomic_files import named
from catalogue.errors import QueryError
from catalogue.formatting import json_line
from catalogue.output.formats import SUFFIXES, FormatSpec, RecordFormat, payload_line, warc_format
from catalogue.output.ledger import Ledger
from catalogue.output.targets import RemoteTarget, Target, digest_of, open_target, split_output
from catalogue.output.writer import INDEX, PartWriter, PayloadWriter, RecordWriter, StreamWriter, numbered
from catalogue.records.document import Documents
from catalogue.records.metadata import metadata_of, row_of, text_of
from catalogue.settings import package_version
from catalogue.store.locks import locked

_CONFORMS_TO = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.0/"
_CONVERTERS = {"text": text_of, "metadata": metadata_of, "parquet": row_of}
_MAX_REMOTE_BYTES = 1_000_000_000
"""Bounds what is lost with this machine."""


Output: TypeAlias = str | Path | IO[bytes]
"""A file or folder, the URL of one, or an open file."""


def format_of(output: Output) -> str:
    """Return the format that a suffix means: text for .jsonl, payload for a folder, WARC for an open file."""
    if not isinstance(output, str | Path):
        return "warc"
    text = str(output)
    for format_, suffix in SUFFIXES.items():
        if suffix and text.endswith(suffix):
            return format_
    _, name = split_output(output, file=False)  # rejects an address with credentials
    if text.endswith("/") or Path(text).is_dir():
        return "payload"
    endings = ", ".join(dict.fromkeys(filter(None, SUFFIXES.values())))
    raise QueryError(f"the format of {name} is unknown; use an ending: {endings}; or choose a format")


def check_output(output: Output, form: str, most: int | None) -> None:
    """Raise QueryError if an output cannot be one of a format, with files of ``most`` bytes."""
    if not isinstance(output, str | Path):
        if not hasattr(output, "write") or hasattr(output, "encoding"):  # a file for texts
            raise QueryError(f"invalid output {output!r:.100}; use a path, a URL or an open binary file")
        if form in {"payload", "parquet"}:
            problem = "only warc, text and metadata can be written to a stream"
            raise QueryError(f"{problem}; choose one of them, or give a file")
        return
    is_folder, suffix = form == "payload", SUFFIXES[form]
    split_output(output, file=not is_folder)
    if most is not None and most < 1:
        raise QueryError("invalid size of files; use at least one byte, such as 1GB")
    if is_folder and most is not None:
        raise QueryError("payloads are a file each; leave out most=")
    if is_folder and str(output).endswith(tuple(filter(None, SUFFIXES.values()))):
        raise QueryError(f"payloads are written to a folder; {output} looks like a file")
    if not str(output).endswith(suffix):
        raise QueryError(f"the name of a file with {form} ends in {suffix}; {output} does not")


@contextmanager
def open_format(spec: FormatSpec) -> Iterator[RecordFormat]:
    if spec.name == "warc":
        yield warc_format(
            {
                "software": f"commoncrawl-catalogue/{package_version()}",
                "format": "WARC File Format 1.0",
                "conformsTo": _CONFORMS_TO,
                "description": spec.about or "records of captures in Common Crawl",
            }
            | ({"isPartOf": ", ".join(spec.crawls)} if spec.crawls else {})
        )
    elif spec.name == "payload":
        yield RecordFormat(spec.name, payload_line)
    else:
        with Documents(main_content=spec.main_content) as documents:
            convert = partial(_CONVERTERS[spec.name], extract=documents.extract)
            if spec.name == "parquet":
                from catalogue.output.parquet_format import encode_row, seal, unseal

                yield RecordFormat(spec.name, encode_row, convert=convert, seal=seal, unseal=unseal)
            else:
                yield RecordFormat(spec.name, json_line, convert=convert)


@contextmanager
def open_output(
    output: Output, format_: RecordFormat, about: Mapping[str, Any], *, most: int | None, cache: Path
) -> Iterator[tuple[RecordWriter, Ledger]]:
    """Open an output for one process at a time: a path, a URL that fsspec can write to, or an open file.

    ``about`` identifies the output, as JSON values. ``most`` is the approximate size of a file in bytes; None for a
    single file, or for 1 GB at a URL. Remote files are staged below the folder ``cache``.

    Raises:
        QueryError: if the output is invalid or holds something else.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be reached.
    """
    check_output(output, format_.name, most)
    if not isinstance(output, str | Path):
        with TemporaryDirectory() as temporary, closing(Ledger(Path(temporary) / "ledger", {})) as ledger:
            yield StreamWriter(output, format_, ledger), ledger
        return
    is_folder = format_.name == "payload"
    folder, name = split_output(output, file=not is_folder)
    if isinstance(folder, str) and not is_folder:
        most = most or _MAX_REMOTE_BYTES
    ledger_name = f"{name}.ledger"
    with _locked(folder, ledger_name, cache, output):
        target = open_target(folder, name, cache)
        if isinstance(target, RemoteTarget):
            target.download_ledger(ledger_name)
        path = target.staging / ledger_name
        first = name if most is None else next(numbered(name, format_))
        if not path.exists() and target.exists(first):
            raise QueryError(
                f"{target.label(first)} was not written by this command; choose another name, or delete it"
            )

        def publish() -> None:
            if isinstance(target, RemoteTarget):
                target.put(path, ledger_name)

        ledger = Ledger(path, {**about, "most": most}, label=target.label(ledger_name), publish=publish)
        with named(target.label(name)), _cleaned_up(ledger, files=is_folder):
            with closing(ledger):
                _check_files(ledger, target.label(ledger_name), name, format_, single=most is None)
                writer = (
                    PayloadWriter(target, name, format_, ledger)
                    if is_folder
                    else PartWriter(target, name, format_, ledger, max_bytes=most)
                )
                with closing(writer):
                    yield writer, ledger
            publish()


def _check_files(ledger: Ledger, label: str, name: str, format_: RecordFormat, *, single: bool) -> None:
    """Check that a ledger lists files of this output only; one that was renamed with its file names the old file."""
    stem, suffix = re.escape(name.removesuffix(format_.suffix)), re.escape(format_.suffix)
    own = INDEX if format_.name == "payload" else name if single else ""
    for file in (*ledger.sizes, *ledger.finished):
        if file != own and (single or not re.fullmatch(rf"{stem}-[0-9]{{5,}}{suffix}", file)):
            raise QueryError(f"{label} is of another output, {file}; choose another name, or delete it")


@contextmanager
def open_folder(output: str | Path, cache: Path) -> Iterator[Target]:
    """Open a folder, or the URL of one, for single files; see ``open_output``."""
    folder, name = split_output(output, file=False)
    if isinstance(folder, Path) and (folder / name).is_file():
        raise QueryError(f"{output} is a file; choose another name for a folder")
    with _locked(folder, name, cache, output):
        yield open_target(folder, name, cache).subfolder(name)


@contextmanager
def _cleaned_up(ledger: Ledger, *, files: bool) -> Iterator[None]:
    """Delete an empty ledger after an error, unless ``files`` may exist that it does not list."""
    try:
        yield
    except BaseException:
        if ledger.empty and not files:  # it would reserve the name for this format
            ledger.path.unlink()
        raise


def _locked(folder: str | Path, name: str, cache: Path, output: str | Path) -> AbstractContextManager[None]:
    if isinstance(folder, Path):
        return locked(folder / f"{name}.lock", output)
    path = cache / "outputs" / f"{digest_of(f'{folder}/{name}')}.lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return locked(path, output)
