"""A mirror that lists half as many crawls as Common Crawl does: cdx_toolkit believes no list of fewer than sixty.

Those that ask all of them ask each in the same way.

``data/crawls.tsv`` is https://index.commoncrawl.org/collinfo.json of November 2025: identifiers, names, first and last
time of each crawl.
"""

import json
from pathlib import Path
from shutil import copytree

from catalogue.commoncrawl.manifests import COLLINFO

_LISTED = Path(__file__).parents[1] / "data" / "crawls.tsv"


def padded_mirror(mirror: Path, folder: Path, *, newest: str | None = None) -> Path:
    """Copy a mirror, and add crawls that it does not have to its list, newest first; nothing else is there of them.

    These are every other one, and the oldest, whose names have other forms.

    Args:
        mirror: a folder laid out as data.commoncrawl.org.
        folder: for the copy, which must not be there yet.
        newest: the crawl that is to be first of the list, which is all that some programs look at.
    """
    copytree(mirror, folder)
    file = folder / COLLINFO
    lines = _lines()
    added = lines[::2] + lines[-5:]
    crawls = {each["id"]: each for each in [*map(_entry, added), *json.loads(file.read_bytes())]}
    listed = [crawls[name] for name in sorted(crawls, reverse=True) if newest is None or name <= newest]
    file.write_text(json.dumps(listed, indent=2), encoding="utf-8")
    return folder


def _lines() -> list[str]:
    return _LISTED.read_text(encoding="utf-8").splitlines()


def _entry(line: str) -> dict[str, str]:
    name, title, start, end = line.split("\t")
    server = f"https://index.commoncrawl.org/{name}"
    return {
        "id": name,
        "name": title,
        "timegate": f"{server}/",
        "cdx-api": f"{server}-index",
        "from": start,
        "to": end,
    }
