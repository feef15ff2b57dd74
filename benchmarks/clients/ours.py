"""What ``catalogue harvest`` does, in two parts: requests, decoding and the store; then the DuckDB catalogue."""

import time
from contextlib import closing

from benchmarks.clients.asking import Task, start
from catalogue.harvest.harvest import harvest
from catalogue.harvest.harvest_crawls import update_tables
from catalogue.session import Session
from catalogue.settings import load_settings
from catalogue.tables.make_table import FooterRows


def ours(task: Task) -> dict[str, float]:
    """Do it."""
    started = time.monotonic()
    crawl = task.manifest.split("/")[1]
    with closing(Session(task.folder, load_settings(source=task.url, rate=task.limit))) as session:
        decoded: dict[str, FooterRows] = {}
        outcome = harvest(session, crawl, ["warc"], decoded=decoded)
        fetched = time.monotonic()
        update_tables(session, decoded)
        session.updated_database()
        shown = time.monotonic()
    return {"files": len(outcome.fetched), "fetch": fetched - started, "table": shown - fetched}


if __name__ == "__main__":
    start(ours)
