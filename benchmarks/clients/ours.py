"""What ``catalogue harvest`` does, in two parts: requests, decoding and the store; then the DuckDB catalogue."""

import time

from benchmarks.clients.asking import Task, start
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.harvest.harvest import harvest
from catalogue.metadata_db.refresh import refresh
from catalogue.session import DATABASE_NAME
from catalogue.settings import STORE_NAME, load_settings
from catalogue.source.open import open_source
from catalogue.store.database import Store
from catalogue.tables.make_table import FooterRows
from catalogue.tables.table_file import TABLES_FOLDER
from catalogue.tables.update_tables import update_tables


def ours(task: Task) -> dict[str, float]:
    """Do it."""
    started = time.monotonic()
    source = open_source(task.url, load_settings(source=task.url, rate=task.limit))
    crawl = task.manifest.split("/")[1]
    with Store(task.folder / STORE_NAME, create=True) as store:
        decoded: dict[str, FooterRows] = {}
        outcome = harvest(crawl, ["warc"], store=store, source=source, decoded=decoded)
        fetched = time.monotonic()
        update_tables(task.folder / TABLES_FOLDER, store, COMMON_CRAWL, decoded=decoded)
        refresh(task.folder / DATABASE_NAME, store)
        shown = time.monotonic()
    source.close()
    return {"files": len(outcome.fetched), "fetch": fetched - started, "table": shown - fetched}


if __name__ == "__main__":
    start(ours)
