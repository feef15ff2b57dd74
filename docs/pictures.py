"""Take the pictures of the documentation from the demo's miniature crawl: ``make pictures``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

import catalogue
from catalogue.demo import LoopbackServer, write_miniature
from catalogue.settings import Settings

FOLDER = Path(__file__).parent / "images"
CRAWLS = ("CC-MAIN-2022-05", "CC-MAIN-2018-05")
SITE = "*.example.com"
BROWSER = ("chromium", "chromium-browser", "google-chrome")
PAGES = {
    "search": f"/search?url={SITE}&crawl={CRAWLS[0]}",
    "site": f"/site?url={SITE.removeprefix('*.')}&crawl={CRAWLS[0]}&counted=yes",
}
WIDTHS = (1280, 390)
PORT, SOURCE_PORT = 8000, 40123
"""Stand in the pictures, so they are always the same."""
_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def picture_plan(data: Path, environment: dict[str, str]) -> None:
    """Draw what ``catalogue plan`` prints, as on a terminal."""
    words = ["plan", SITE, "--crawl", CRAWLS[0]]
    command = [sys.executable, "-m", "catalogue", "--data", str(data), *words]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=90, file=nowhere)
        console.print(Text(f"$ catalogue plan '{SITE}' --crawl {CRAWLS[0]}\n{printed.rstrip()}"))
    svg = console.export_svg(title="catalogue plan")
    (FOLDER / "plan.svg").write_text(_FONTS.sub("", svg), encoding="utf-8")


def picture_map(data: Path, source: str) -> None:
    """Draw the key map of a plan."""
    with catalogue.open(data, settings=Settings(source=source)) as cat:
        cat.captures(SITE, crawls=CRAWLS[0]).plot().save(FOLDER / "map.svg")


def picture_page(address: str, name: str, folder: Path, width: int, *, dark: bool) -> None:
    """Take a screenshot of a page of the server, for a phone or a desktop.

    Raises:
        SystemExit: if there is no Chromium.
    """
    browser = next(filter(None, map(shutil.which, BROWSER)), None)
    if browser is None:
        sys.exit("the pictures of pages need Chromium")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    arguments += [f"--user-data-dir={folder}", f"--window-size={width},1100", f"--screenshot={FOLDER / name}"]
    arguments += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    subprocess.run([browser, *arguments, address], check=True, capture_output=True, timeout=60)


@contextmanager
def serving(data: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run ``catalogue serve`` until it has said that it is ready."""
    command = [sys.executable, "-m", "catalogue", "--data", str(data), "serve", "--port", str(PORT)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            next(line for line in server.stderr or () if f":{PORT}" in line)
            yield f"http://127.0.0.1:{PORT}"
        finally:
            server.terminate()


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        miniature = write_miniature(folder / "mirror")
        with LoopbackServer(miniature.folder, port=SOURCE_PORT) as source:
            environment = os.environ | {"CATALOGUE_SOURCE": source.url, "CATALOGUE_CACHE": str(folder / "cache")}
            data = folder / "data"
            with catalogue.open(data, settings=Settings(source=source.url)) as cat:
                cat.harvest(CRAWLS, subsets="all")
            picture_plan(data, environment)
            picture_map(data, source.url)
            with serving(data, environment) as address:
                for name, path in PAGES.items():
                    for width, dark in product(WIDTHS, (False, True)):
                        file = f"{name}-{width}-{'dark' if dark else 'light'}.png"
                        picture_page(f"{address}{path}", file, folder / "browser", width, dark=dark)


if __name__ == "__main__":
    main()
