"""Paths of index files as Common Crawl spells them."""

CRAWL = "CC-MAIN-2022-05"
ROOT = f"cc-index/table/cc-main/warc/crawl={CRAWL}"


def part(number: int, subset: str = "warc") -> str:
    return f"{ROOT}/subset={subset}/part-{number:05}-4dd7944b-ef2f-47cc-b0a6-0dda2b1d2b3f.c000.gz.parquet"
