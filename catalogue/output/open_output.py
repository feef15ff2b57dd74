"""An output, opened: gone on with where it was left, or begun where nothing else is."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from catalogue.errors import CatalogueError, QueryError
from catalogue.output.folder_output import Folder
from catalogue.output.formats import SUFFIXES, Form, Payloads
from catalogue.output.ledger import Ledger
from catalogue.output.parts import Parts, first_name
from catalogue.output.stream import Stream, open_stream
from catalogue.output.targets import Away, Here, digest_of, open_place, split_output
from catalogue.store.locks import locked

_MOST_AWAY = 1_000_000_000
"""Bytes of a file that is sent elsewhere, unless it is said: so much is lost here at most if this machine is."""

_Files: TypeAlias = Parts | Folder
Output: TypeAlias = _Files | Stream
"""Whatever takes records."""


def form_for(output: str | Path | IO[bytes]) -> str:
    """The form of an output by its suffix, where JSON lines are texts; payloads for a folder, WARC for an open file.

    Raises:
        QueryError: if it means none.
    """
    if not isinstance(output, str | Path):
        return "warc"
    text = str(output)
    for form, suffix in SUFFIXES.items():
        if suffix and text.endswith(suffix):
            return form
    _, name = split_output(output, file=False)  # which refuses an address with a secret in it
    if text.endswith("/") or Path(text).is_dir():
        return "payload"
    endings = ", ".join(dict.fromkeys(filter(None, SUFFIXES.values())))
    message = f"the name {name} does not say its format; use an ending: {endings}; or choose a format"
    raise QueryError(message)


@contextmanager
def open_output(
    output: str | Path | IO[bytes], form: Form, about: Mapping[str, Any], *, most: int | None, cache: Path
) -> Iterator[tuple[Output, Ledger]]:
    """Open an output, and keep others from it.

    Args:
        output: a path, a URL that fsspec can write to, or an open file.
        form: of the records in it.
        about: what makes it this output and no other, as JSON has it.
        most: bytes of a file, about; None for one file, or 1 GB where it goes elsewhere.
        cache: below which files grow that go elsewhere.

    Raises:
        QueryError: if it cannot be one, or something else is there.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be reached.
    """
    if not isinstance(output, str | Path):
        with open_stream(output, form) as opened:
            yield opened
        return
    folder, name = split_output(output, file=not isinstance(form, Payloads))
    if most is not None and most < 1:
        message = "files have a size of one byte at least; give another, such as 1GB"
        raise QueryError(message)
    if isinstance(form, Payloads):
        if most is not None:
            message = "payloads are a file each; leave out the size of files"
            raise QueryError(message)
    elif isinstance(folder, str):
        most = most or _MOST_AWAY
    noted = f"{name}.ledger"
    with _locked(folder, noted, cache, output):
        place = open_place(folder, name, cache)
        if isinstance(place, Away):
            place.agree(noted)
        path = place.growing / noted
        first = first_name(name, form, most)
        if not path.exists() and place.holds(first):
            message = f"{place.shown(first)} holds something else; choose another name, or delete it"
            raise QueryError(message)

        def publish() -> None:
            if isinstance(place, Away):
                place.put(path, noted)

        ledger = Ledger(path, {**about, "most": most}, shown=place.shown(noted), publish=publish)
        with _tidied(ledger, place.shown(name), files=isinstance(form, Payloads)):
            with closing(ledger), closing(_output(place, name, form, ledger, most)) as parts:
                yield parts, ledger
            publish()


@contextmanager
def open_folder(output: str | Path, cache: Path) -> Iterator[Here | Away]:
    """Open a folder of files that are put there one by one, and keep others from it.

    Args:
        output: a path, or a URL that fsspec can write to.
        cache: below which files grow that go elsewhere.

    Raises:
        QueryError: if it cannot be one.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be reached.
    """
    folder, name = split_output(output, file=False)
    if isinstance(folder, Path) and (folder / name).is_file():
        message = f"{output} is a file; choose another name for a folder"
        raise QueryError(message)
    with _locked(folder, name, cache, output):
        yield open_place(folder, name, cache).below(name)


@contextmanager
def _tidied(ledger: Ledger, shown: str, *, files: bool) -> Iterator[None]:
    """See to what is left where something fails; ``files`` may be there of which the ledger does not know yet."""
    try:
        yield
    except BaseException as error:
        if ledger.empty and not files:  # it would keep the name from other forms
            ledger.path.unlink()
        if isinstance(error, OSError) and error.filename is None and not isinstance(error, CatalogueError):
            error.filename = shown  # as of a disk that is full
        raise


def _output(place: Here | Away, name: str, form: Form, ledger: Ledger, most: int | None) -> _Files:
    if isinstance(form, Payloads):
        return Folder(place, name, form, ledger)
    return Parts(place, name, form, ledger, most=most)


@contextmanager
def _locked(folder: str | Path, noted: str, cache: Path, output: str | Path) -> Iterator[None]:
    """Keep others from an output: beside it, where whoever writes to it looks, or if it goes elsewhere in the cache."""
    if isinstance(folder, Path):
        path = folder / f"{noted}.lock"
    else:
        path = cache / "outputs" / f"{digest_of(f'{folder}/{noted}')}.lock"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path, output):
        try:
            yield
        finally:
            if isinstance(folder, Path):
                with suppress(OSError):  # where nothing can be removed that is open
                    path.unlink()
