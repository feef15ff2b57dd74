"""The folder of a table: versions of its metadata, each there whole or not at all.

It is laid out as Iceberg's HadoopTables have it, so that every engine can read it by its path:
``metadata/vN.metadata.json`` and, for those who list no folders, ``metadata/version-hint.text`` with N. A version is
there as soon as its JSON has its name; what was written before that is named by nothing until then.
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
"""What an address cannot have in a path: pyiceberg, as others, takes something else for it and writes there."""


class TableFolder:
    """The folder; only one process at a time may write into it, for as long as it is in ``writing``."""

    def __init__(self, path: Path) -> None:
        """Look at a folder; nothing is made."""
        self.path = path
        self.metadata = path / "metadata"

    @property
    def address(self) -> str:
        """As an address, without a slash at the end.

        Nothing is escaped: Hadoop and pyiceberg take what stands there for the file's name.
        """
        return f"file://{self.path.absolute().as_posix()}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder if need be, and keep others from writing into it.

        Raises:
            QueryError: if there is something else.
            StoreLocked: if another process writes into it.
        """
        self.check()
        make_folder(self.metadata)
        with locked(self.path / _LOCK, self.path), named(self.path):
            yield

    def check(self) -> None:
        """See that there is nothing but what we write, and that it can be written there.

        Raises:
            QueryError: if there is, or it cannot.
        """
        check_address(self.address)
        strange: Iterable[str] = ()
        if self.path.is_dir():
            strange = {file.name for file in self.path.iterdir()} - {_LOCK, self.metadata.name}
            if not strange and self.metadata.is_dir():
                strange = [file.name for file in self.metadata.iterdir() if not _OURS.fullmatch(file.name)]
        if strange or (self.path.exists() and not self.path.is_dir()):
            message = f"{self.path} is there already and no table of ours; choose another path, or an empty folder"
            raise QueryError(message)

    def version(self) -> int:
        """The newest version, 0 if there is none yet; the hint may lag behind, if somebody was killed."""
        try:
            number = int((self.metadata / "version-hint.text").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            number = 0
        while self.file(number + 1).exists():
            number += 1
        return number

    def file(self, version: int) -> Path:
        """The file of a version."""
        return self.metadata / f"v{version}.metadata.json"

    def commit(self, version: int, document: str, written: Iterable[Path]) -> None:
        """Make a version the newest, when all that it names is safe on the disk."""
        for file in written:
            sync(file)
        self._write(self.file(version), document)
        self.hint(version)

    def hint(self, version: int) -> None:
        """Say which version is the newest, unless it is said already."""
        file = self.metadata / "version-hint.text"
        if not file.exists() or file.read_text(encoding="ascii", errors="replace") != str(version):
            self._write(file, str(version))

    def _write(self, file: Path, text: str) -> None:
        with whole_file(file) as opened:
            opened.write(text.encode())


def check_address(address: str) -> None:
    """See that an address leads to where it seems to.

    Raises:
        QueryError: if it does not.
    """
    if found := _CUT.search(address):
        message = (
            f"{address!r} has {found[0]!r} in it, which addresses in Iceberg tables cannot have; choose another path"
        )
        raise QueryError(message)
