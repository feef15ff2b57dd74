"""The folder of a table, with versions of its metadata that are written atomically.

It has the layout of Iceberg's HadoopTables, so that every engine can read it by its path: ``metadata/vN.metadata.json``
and, for engines that list no folders, ``metadata/version-hint.text`` with N. A version exists once its JSON is renamed
to its name.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from catalogue.atomic_files import make_folder, named, sync, whole_file
from catalogue.errors import QueryError
from catalogue.store.locks import locked

_LOCK = ".export.lock"
_OURS = re.compile(
    r"v[0-9]+\.metadata\.json|version-hint\.text|CC-[A-Z]+-[0-9-]+\.[0-9a-f]{32}\.[0-9]+\.avro|snap-[0-9]+\.avro"
    r"|\..+\.part|\..+\.crc"
)

_CUT = re.compile(r"[#?\t\r\n]")
"""Characters at which pyiceberg and others cut the path of an address, and would write to another file."""


class TableFolder:
    """The folder. One process at a time writes into it, within ``writing``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = path / "metadata"

    @property
    def address(self) -> str:
        """The address, without a slash at its end and without escapes, as Hadoop and pyiceberg use it."""
        return f"file://{self.path.absolute().as_posix()}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Create the folder if needed, and lock it.

        Raises:
            QueryError: if it has other files.
            StoreLocked: if another process writes into it.
        """
        self.check()
        make_folder(self.metadata)
        with locked(self.path / _LOCK, self.path), named(self.path):
            yield

    def check(self) -> None:
        """Check that the folder has only files of a table, and a valid address.

        Raises:
            QueryError: if not.
        """
        check_address(self.address)
        others: Iterable[str] = ()
        if self.path.is_dir():
            others = {file.name for file in self.path.iterdir()} - {_LOCK, self.metadata.name}
            if not others and self.metadata.is_dir():
                others = [file.name for file in self.metadata.iterdir() if not _OURS.fullmatch(file.name)]
        if others or (self.path.exists() and not self.path.is_dir()):
            message = f"{self.path} has other files than a table of this tool; choose another path, or an empty folder"
            raise QueryError(message)

    def version(self) -> int:
        """Return the newest version, 0 if there is none; the hint is outdated if a process was killed."""
        try:
            number = int((self.metadata / "version-hint.text").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            number = 0
        while self.file(number + 1).exists():
            number += 1
        return number

    def file(self, version: int) -> Path:
        return self.metadata / f"v{version}.metadata.json"

    def commit(self, version: int, document: str, written: Iterable[Path]) -> None:
        """Sync all files of a version, then make it the newest."""
        for file in written:
            sync(file)
        self._write(self.file(version), document)
        self.hint(version)

    def hint(self, version: int) -> None:
        """Write the number of the newest version, unless it is written already."""
        file = self.metadata / "version-hint.text"
        if not file.exists() or file.read_text(encoding="ascii", errors="replace") != str(version):
            self._write(file, str(version))

    def _write(self, file: Path, text: str) -> None:
        with whole_file(file) as opened:
            opened.write(text.encode())


def check_address(address: str) -> None:
    """Check that readers will not cut an address.

    Raises:
        QueryError: if they would.
    """
    if found := _CUT.search(address):
        message = f"{address!r} has {found[0]!r}, which addresses in Iceberg tables cannot have; choose another path"
        raise QueryError(message)
