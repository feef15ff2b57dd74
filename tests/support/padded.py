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


def padded_mirror(mirror: Path, folder: Path) -> Path:
    """Copy a mirror into a new folder, and add crawls to its list, without files: every other one, and the oldest."""
    copytree(mirror, folder)
    file = folder / COLLINFO
    lines = _lines()
    added = lines[::2] + lines[-5:]
    crawls = {each["id"]: each for each in [*map(_entry, added), *json.loads(file.read_bytes())]}
    listed = [crawls[name] for name in sorted(crawls, reverse=True)]
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
