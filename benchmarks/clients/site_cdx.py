"""cdx_toolkit and a CDX server, which reads its own disk for it and sends the rows.

By default it waits three seconds between requests; not here, because the other clients have no limit either.
"""

import os
from typing import Any

os.environ["CDXT_DEFAULT_MIN_RETRY_INTERVAL"] = "0"  # read when it is imported

import cdx_toolkit  # type: ignore[import-untyped]

from benchmarks.clients.site_asking import Ask, Site, Task, start


def ask(task: Task) -> Ask:
    """Prepare."""
    fetcher = cdx_toolkit.CDXFetcher(source=task.server)

    def asked(site: Site) -> list[dict[str, Any]]:
        return [_row(each.data) for each in fetcher.iter(site.pattern)]

    return asked


def _row(fields: dict[str, str]) -> dict[str, Any]:
    return fields | {"warc_filename": fields["filename"], "warc_record_offset": int(fields["offset"])}


if __name__ == "__main__":
    start(ask)
