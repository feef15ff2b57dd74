"""Where outputs get their own names: a folder of this machine, or whatever fsspec can write to."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from catalogue.atomic_files import make_folder, put_in_place
from catalogue.errors import OutputFailed, QueryError
from catalogue.settings import install_command
from catalogue.source.aws_logging import be_discreet

_WHOLE = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
"""Stores whose objects are there when they are whole; elsewhere a file is sent under another name first."""
_LONGEST = 200
"""Bytes of a name, for 255 are what file systems take, and what is beside an output has longer ones."""

_Answer = TypeVar("_Answer")


class Place(Protocol):
    """Where finished files go."""

    growing: Path
    """The folder of this machine in which they grow."""

    def shown(self, name: str) -> str:
        """What users call a file."""

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none."""

    def holds(self, name: str) -> bool:
        """Whether there is such a file, or a folder with something in it."""

    def put(self, path: Path, name: str) -> None:
        """Give a file its name. It may leave the old one, too.

        Raises:
            OutputFailed: if that cannot be done; the file is left as it was.
        """

    def remove(self, name: str) -> None:
        """Delete a file that was put."""

    def bring(self, name: str) -> Path:
        """A file that was put, on this machine."""

    def done_with(self, brought: Path) -> None:
        """Remove what was brought, if it is a copy."""

    def names(self) -> set[str]:
        """Of the files in its folders, with those before them."""

    def below(self, name: str) -> "Place":
        """A folder in it."""


class Here:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which need not be there yet."""
        self.growing = folder

    def shown(self, name: str) -> str:
        """See ``Place``."""
        return str(self.growing / name)

    def size(self, name: str) -> int | None:
        """See ``Place``."""
        with suppress(FileNotFoundError):
            return (self.growing / name).stat().st_size
        return None

    def holds(self, name: str) -> bool:
        """See ``Place``."""
        path = self.growing / name
        return any(path.iterdir()) if path.is_dir() else path.exists()

    def put(self, path: Path, name: str) -> None:
        """See ``Place``."""
        target = self.growing / name
        make_folder(target.parent)
        put_in_place(path, target)

    def remove(self, name: str) -> None:
        """See ``Place``."""
        (self.growing / name).unlink(missing_ok=True)

    def bring(self, name: str) -> Path:
        """See ``Place``."""
        return self.growing / name

    def done_with(self, brought: Path) -> None:
        """See ``Place``."""

    def names(self) -> set[str]:
        """See ``Place``."""
        folders = (each.name for each in os.scandir(self.growing) if each.is_dir())
        return {f"{folder}/{each.name}" for folder in folders for each in os.scandir(self.growing / folder)}

    def below(self, name: str) -> "Here":
        """See ``Place``."""
        make_folder(self.growing / name)
        return Here(self.growing / name)


class Away:
    """A folder of any store that fsspec can write to, with whatever credentials the user has set up for it."""

    def __init__(self, files: Any, url: str, root: str, growing: Path) -> None:  # noqa: ANN401 - of an extra
        """Take a store.

        Args:
            files: fsspec's file system.
            url: of the folder, for messages.
            root: that, as the file system calls it.
            growing: a folder of this machine for nothing else.
        """
        self._files = files
        self._url = url
        self._root = root
        self.growing = growing
        growing.mkdir(mode=0o700, parents=True, exist_ok=True)

    def shown(self, name: str) -> str:
        """See ``Place``."""
        return f"{self._url}/{name}"

    def size(self, name: str) -> int | None:
        """See ``Place``."""
        return self._asked(name, lambda: self._size(name))

    def _size(self, name: str) -> int | None:
        try:
            found = self._files.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def holds(self, name: str) -> bool:
        """See ``Place``."""
        there = f"{self._root}/{name}"
        return self._asked(
            name, lambda: self._files.isfile(there) or (self._files.isdir(there) and bool(self._files.ls(there)))
        )

    def put(self, path: Path, name: str) -> None:
        """See ``Place``; what is there then has as many bytes."""
        self._asked(name, lambda: self._put(path, f"{self._root}/{name}"))
        if self.size(name) != path.stat().st_size:
            message = f"{self.shown(name)} has not the size of what was sent; run the same again"
            raise OutputFailed(message)

    def _put(self, path: Path, target: str) -> None:
        if _protocols(self._files) & _WHOLE:
            self._files.put_file(str(path), target)
            return
        folder, _, last = target.rpartition("/")
        beside = f"{folder}/.{last}.part"
        self._files.makedirs(folder, exist_ok=True)
        self._files.put_file(str(path), beside)
        if self._files.exists(target):
            self._files.rm_file(target)
        self._files.mv(beside, target)

    def remove(self, name: str) -> None:
        """See ``Place``."""
        self._asked(name, lambda: self._files.rm_file(f"{self._root}/{name}"))

    def bring(self, name: str) -> Path:
        """See ``Place``."""
        path = self.growing / name
        self._asked(name, lambda: self._files.get_file(f"{self._root}/{name}", str(path)))
        return path

    def done_with(self, brought: Path) -> None:
        """See ``Place``."""
        brought.unlink()

    def names(self) -> set[str]:
        """See ``Place``."""
        found = self._asked("", lambda: self._files.find(self._root))
        return {str(each).removeprefix(f"{self._root}/") for each in found}

    def below(self, name: str) -> "Away":
        """See ``Place``."""
        return Away(self._files, f"{self._url}/{name}", f"{self._root}/{name}", self.growing / name)

    def agree(self, name: str) -> None:
        """Go on from the ledger that is there, unless the one here has gone on from it.

        What grows here and another machine went past is dropped.
        """
        there = f"{self._root}/{name}"
        found = self._asked(name, lambda: bytes(self._files.cat_file(there)) if self._files.exists(there) else None)
        mine = self.growing / name
        if found is None or (mine.exists() and mine.read_bytes().startswith(found)):
            return
        rmtree(self.growing)
        self.growing.mkdir(mode=0o700)
        mine.write_bytes(found)

    def _asked(self, name: str, ask: Callable[[], _Answer]) -> _Answer:
        """Whatever goes wrong in one sentence, in which nothing stands that a library says: it may hold a secret."""
        try:
            self._files.invalidate_cache()
            return ask()
        except Exception as error:  # so many stores, so many errors
            response = getattr(error.__cause__ or error, "response", None)
            told = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
            message = (
                f"{self.shown(name)} cannot be written or read ({told or type(error).__name__}); see to the store "
                "and to your credentials for it, and the same again goes on from here"
            )
            raise OutputFailed(message) from error


def split_output(output: str | Path, *, file: bool) -> tuple[str | Path, str]:
    """The folder of an output, a ``Path`` or a URL, and its name in it.

    Args:
        output: as users give it.
        file: whether it is to be a file, and not a folder.

    Raises:
        QueryError: if there is no such folder here, or the URL is none to write to.
    """
    text = str(output)
    if "://" in text:
        try:
            parts = urlsplit(text)
            plain = "@" not in parts.netloc and "::" not in text and text.isprintable()
        except ValueError:
            plain = False
        folder, _, name = text.rstrip("/").rpartition("/")
        if not plain or not name or folder.endswith(":/"):
            # It is not repeated, for it may hold a password.
            message = "an output's address is such as s3://bucket/prefix/found.warc.gz, without credentials in it"
            raise QueryError(message)
        if not _is_here(text):
            return folder, name
        output = _files(text)[1]
    target = Path(output)
    if target.name in {"", ".."} or "\0" in text or len(text.rpartition("/")[2].encode(errors="replace")) > _LONGEST:
        message = f"{text[:_LONGEST]!r} is no name for an output; choose one, such as found"
        raise QueryError(message)
    if not target.parent.is_dir():
        # What has these in it may be an address that was mistyped, and hold a password.
        message = f"there is no folder {target.parent if set(text).isdisjoint('?@') else 'of that name'} to write to"
        raise QueryError(message)
    if file and target.is_dir():
        message = f"{output} is a folder; choose another name"
        raise QueryError(message)
    return target.parent, target.name


def open_place(folder: str | Path, name: str, cache: Path) -> "Here | Away":
    """The place of an output.

    Args:
        folder: as ``split_output`` gives it.
        name: of the output in it.
        cache: below which files grow that go elsewhere.

    Raises:
        QueryError: if a library is lacking.
    """
    if isinstance(folder, Path):
        return Here(folder)
    files, root = _files(folder)
    return Away(files, folder, root.rstrip("/"), cache / "outputs" / digest_of(f"{folder}/{name}"))


def digest_of(text: str) -> str:
    """A name for what belongs to an output, in the folder of all of these."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _is_here(url: str) -> bool:
    return "file" in _protocols(_files(url)[0])


def _files(url: str) -> tuple[Any, str]:
    """Fsspec's file system of a URL, and what it calls the place."""
    be_discreet()
    scheme = url.partition("://")[0]
    options = {"anon": False} if scheme in {"s3", "s3a"} else {}  # whatever fsspec's own settings say of reading
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

        files, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)
    except ImportError as error:
        extra = install_command("s3") if scheme in {"s3", "s3a"} else "see fsspec's documentation"
        message = f"to write to {scheme}:// takes another library ({error.name or 'fsspec'}); {extra}"
        raise QueryError(message) from error
    except ValueError:
        files, root = None, ""
    if files is None or scheme in {"http", "https"}:
        message = f"{scheme}:// is nothing that can be written to; give a folder, or such as s3://bucket/prefix/"
        raise QueryError(message)
    return files, str(root)


def _protocols(files: Any) -> set[str]:  # noqa: ANN401 - of an extra
    told = files.protocol
    return {told} if isinstance(told, str) else set(told)
