"""Places for finished files: a local folder, or any store that fsspec can write to."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from catalogue.atomic_files import make_folder, put_in_place
from catalogue.errors import OutputFailed, QueryError
from catalogue.settings import install_command
from catalogue.source.observe import hide_credentials

_ATOMIC = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
"""Stores whose objects appear when they are complete; elsewhere a file is uploaded under a temporary name."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a drive of Windows has one letter
_MAX_NAME = 200
"""Bytes; file systems allow 255, and names of temporary files are longer."""


class LocalTarget:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.staging = folder

    def label(self, name: str) -> str:
        return str(self.staging / name)

    def size(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return (self.staging / name).stat().st_size
        return None

    def exists(self, name: str) -> bool:
        """Return whether there is such a file, or such a folder that is not empty."""
        path = self.staging / name
        return any(path.iterdir()) if path.is_dir() else path.exists()

    def put(self, path: Path, name: str) -> None:
        """Move or copy a finished file to its name; if that fails, it is unchanged."""
        target = self.staging / name
        make_folder(target.parent)
        put_in_place(path, target)

    def remove(self, name: str) -> None:
        (self.staging / name).unlink(missing_ok=True)

    def download(self, name: str) -> Path:
        return self.staging / name

    def names(self) -> set[str]:
        """Return ``folder/file`` for the files in subfolders."""
        folders = (each.name for each in os.scandir(self.staging) if each.is_dir())
        return {f"{folder}/{each.name}" for folder in folders for each in os.scandir(self.staging / folder)}

    def subfolder(self, name: str) -> "LocalTarget":
        make_folder(self.staging / name)
        return LocalTarget(self.staging / name)


class RemoteTarget:
    """A folder of a store that fsspec can write to, with the same methods; all raise ``OutputFailed``."""

    def __init__(self, files: Any, url: str, root: str, staging: Path) -> None:  # noqa: ANN401 - of an extra
        self._files = files
        self._url = url
        self._root = root
        self.staging = staging
        staging.mkdir(mode=0o700, parents=True, exist_ok=True)

    def label(self, name: str) -> str:
        return f"{self._url}/{name}"

    def size(self, name: str) -> int | None:
        with self._errors(name):
            try:
                info = self._files.info(f"{self._root}/{name}")
            except FileNotFoundError:
                return None
            return int(info["size"]) if info["type"] == "file" else None

    def exists(self, name: str) -> bool:
        path = f"{self._root}/{name}"
        with self._errors(name):
            return self._files.isfile(path) or (self._files.isdir(path) and bool(self._files.ls(path)))

    def put(self, path: Path, name: str) -> None:
        target = f"{self._root}/{name}"
        with self._errors(name):
            if _protocols(self._files) & _ATOMIC:
                self._files.put_file(str(path), target)
            else:
                folder, _, last = target.rpartition("/")
                temporary = f"{folder}/.{last}.part"
                self._files.makedirs(folder, exist_ok=True)
                self._files.put_file(str(path), temporary)
                if self._files.exists(target):
                    self._files.rm_file(target)
                self._files.mv(temporary, target)
        if self.size(name) != path.stat().st_size:
            raise OutputFailed(
                f"{self.label(name)} does not have the size of the uploaded file; run the same command again"
            )

    def remove(self, name: str) -> None:
        with self._errors(name):
            self._files.rm_file(f"{self._root}/{name}")

    def download(self, name: str) -> Path:
        path = self.staging / name
        with self._errors(name):
            self._files.get_file(f"{self._root}/{name}", str(path))
        return path

    def names(self) -> set[str]:
        with self._errors(""):
            return {str(each).removeprefix(f"{self._root}/") for each in self._files.find(self._root)}

    def subfolder(self, name: str) -> "RemoteTarget":
        return RemoteTarget(self._files, f"{self._url}/{name}", f"{self._root}/{name}", self.staging / name)

    def download_ledger(self, name: str) -> None:
        """Use the remote ledger instead of local files, unless the local one continues it."""
        path, local = f"{self._root}/{name}", self.staging / name
        with self._errors(name):
            remote = bytes(self._files.cat_file(path)) if self._files.exists(path) else None
        if remote is None or (local.exists() and local.read_bytes().startswith(remote)):
            return
        rmtree(self.staging)
        self.staging.mkdir(mode=0o700)
        local.write_bytes(remote)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Convert any error to one sentence without the library's message, which may contain a secret."""
        try:
            self._files.invalidate_cache()
            yield
        except Exception as error:  # each store has its own errors
            response = getattr(error.__cause__ or error, "response", None)
            code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
            raise OutputFailed(
                f"{self.label(name)} cannot be written or read ({code or type(error).__name__}); check the store "
                "and your credentials for it, and run the same command again"
            ) from error


Target: TypeAlias = LocalTarget | RemoteTarget


def local_path(output: str | Path) -> Path:
    """Return the path of an output that can only be a file or folder of this machine.

    Raises:
        QueryError: if it is an address or ``-``, which would become the names of files.
    """
    if _ADDRESS.match(str(output)):
        # The message leaves it out: it may contain a password.
        raise QueryError("this output cannot be an address, unlike those of fetch and export snapshot; name a path")
    if str(output) == "-":
        raise QueryError("this output cannot be standard output; name a path")
    return Path(output)


def split_output(output: str | Path, *, file: bool) -> tuple[str | Path, str]:
    """Return the parent folder of an output, a ``Path`` or a URL, and its name.

    Raises:
        QueryError: if the parent does not exist, the URL is invalid, or a ``file`` is an existing folder.
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
            # The message leaves it out: it may contain a password.
            raise QueryError(
                "invalid output address; use one without credentials, such as s3://bucket/prefix/found.warc.gz"
            )
        files, output = _files(text)
        if "file" not in _protocols(files):
            return folder, name
    target = Path(output)
    if target.name in {"", ".."} or "\0" in text or len(text.rpartition("/")[2].encode(errors="replace")) > _MAX_NAME:
        raise QueryError(f"invalid name of an output: {text[:_MAX_NAME]!r}; use one such as found")
    if not target.parent.is_dir():
        # With ? or @ it may be a mistyped address that contains a password.
        raise QueryError(
            f"there is no folder {target.parent if set(text).isdisjoint('?@') else 'of that name'} to write to; "
            "make it, or choose another name"
        )
    if file and target.is_dir():
        raise QueryError(f"{output} is a folder; choose another name")
    return target.parent, target.name


def open_target(folder: str | Path, name: str, cache: Path) -> Target:
    if isinstance(folder, Path):
        return LocalTarget(folder)
    files, root = _files(folder)
    return RemoteTarget(files, folder, root.rstrip("/"), cache / "outputs" / digest_of(f"{folder}/{name}"))


def digest_of(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _files(url: str) -> tuple[Any, str]:
    hide_credentials()
    scheme = url.partition("://")[0]
    options = {"anon": False} if scheme in {"s3", "s3a"} else {}  # overrides fsspec's settings for reading
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

        files, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)
    except ImportError as error:
        remedy = f"run: {install_command('s3')}" if scheme in {"s3", "s3a"} else "see fsspec's documentation"
        raise QueryError(f"writing to {scheme}:// needs {error.name or 'another library'}; {remedy}") from error
    except OSError as error:  # some stores are connected here
        raise OutputFailed(f"{url} cannot be reached: {error.strerror}; check the address") from error
    except (AttributeError, TypeError, ValueError):  # the scheme is unknown, or needs more than an address
        files, root = None, ""
    if files is None or scheme in {"http", "https"}:
        raise QueryError(f"{scheme}:// cannot be written to; give a folder, or an address such as s3://bucket/prefix/")
    return files, str(root)


def _protocols(files: Any) -> set[str]:  # noqa: ANN401 - of an extra
    protocols = files.protocol
    return {protocols} if isinstance(protocols, str) else set(protocols)
