"""The SQL of ``queries/``."""

from pathlib import Path

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset


def queries_folder() -> Path:
    """Return the folder: in the installed package, or next to it in a checkout."""
    inside = Path(__file__).parent.parent / "queries"
    return inside if inside.exists() else inside.parent.parent / "queries"


def statement(name: str, table: Dataset) -> str:
    """Return a statement by its path, with the key column of a dataset."""
    sql = (queries_folder() / name).read_text(encoding="utf-8")
    for bound in ("min", "max"):
        other = f"{bound}_{table.key}"
        if table.key != COMMON_CRAWL.key:
            sql = sql.replace(
                f"{bound}_{COMMON_CRAWL.key}", other if other.isidentifier() else '"' + other.replace('"', '""') + '"'
            )
    return sql
