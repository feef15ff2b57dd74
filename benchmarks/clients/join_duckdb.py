"""The same joins by DuckDB, of Parquet files: ``python -m benchmarks.clients.join_duckdb HOW FILES KEYS OUTPUT``."""

import json
import sys
from pathlib import Path

import duckdb

COLUMNS = (
    "url_surtkey, fetch_time, url, content_mime_type, content_mime_detected, fetch_status, content_digest, "
    "warc_record_length, warc_record_offset, warc_filename, content_languages, content_charset, fetch_redirect, "
    "content_truncated, crawl, subset"
)
_KEYS = "c.url_surtkey = keys.url_surtkey"
_NEWEST = "max_by(c, {'time': c.fetch_time, 'file': c.warc_filename, 'offset': c.warc_record_offset})"
HOW = {
    "inner": f"SELECT id, c.{COLUMNS} FROM captures c JOIN keys ON {_KEYS}",
    "semi": f"SELECT * FROM keys SEMI JOIN captures c ON {_KEYS}",
    "anti": f"SELECT * FROM keys ANTI JOIN captures c ON {_KEYS}",
    "crawls": f"""
        SELECT id, any_value(keys.url_surtkey) AS key, count(c.url_surtkey) AS captures,
               min(fetch_time) AS first, max(fetch_time) AS last,
               coalesce(list(DISTINCT fetch_status) FILTER (fetch_status IS NOT NULL), []) AS statuses,
               coalesce(list(DISTINCT crawl) FILTER (crawl IS NOT NULL), []) AS crawls
        FROM keys LEFT JOIN captures c ON {_KEYS} GROUP BY id""",
    "latest": f"""
        SELECT id, unnest({_NEWEST}) FROM keys JOIN (SELECT {COLUMNS} FROM captures) c ON {_KEYS} GROUP BY id""",
}
"""Statements, by the kind of the join."""


def main() -> None:
    how, files, keys, output = sys.argv[1:]
    connection = duckdb.connect()
    connection.execute(
        f"CREATE VIEW captures AS FROM read_parquet('{files}', hive_partitioning = true);"
        f"CREATE VIEW keys AS FROM '{keys}'"
    )
    before = _read_bytes()
    connection.execute(f"COPY ({HOW[how]}) TO '{output}' (FORMAT parquet, COMPRESSION zstd)")
    print(json.dumps({"bytes": _read_bytes() - before - Path(keys).stat().st_size}))


def _read_bytes() -> int:
    """Return the bytes that this process has read; 0 where that is not known."""
    try:
        return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main()
