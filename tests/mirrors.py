"""The index files of a mirror (see the fixture ``mirror``) and their footers."""

from pathlib import Path

from catalogue.footer import TRAILER, Footer, decode_footer, footer_length


def index_paths(mirror: Path) -> list[Path]:
    return sorted(mirror.glob("cc-index/table/cc-main/warc/crawl=*/subset=*/*.parquet"))


def crawl_of(path: Path) -> str:
    return path.parent.parent.name.removeprefix("crawl=")


def one_of_each_crawl(mirror: Path) -> list[Path]:
    return list({crawl_of(path): path for path in reversed(index_paths(mirror))}.values())


def raw_footer(data: bytes) -> bytes:
    """The footer of a file's bytes."""
    return data[-TRAILER - footer_length(data) : -TRAILER]


def read_footer(data: bytes) -> Footer:
    return decode_footer(raw_footer(data), len(data))
