"""DataFusion, through its S3 store, as its HTTP store refuses ``http://``; what is asked of the server is the same.

Over HTTP nothing can be listed, so each file is a table and the question is put to all of them; they are told the
schema, or each would be asked for it before. The context stays, and with it footers and page indexes.
"""

from typing import Any

from datafusion import SessionConfig, SessionContext  # type: ignore[import-not-found]

from benchmarks.clients.lookup_datafusion import read_as_s3
from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, start

_SETTINGS = {"datafusion.execution.parquet.metadata_size_hint": "2000000"}
"""Footer and page index of a file by one request; by its own setting, half a megabyte, they take two and no less."""


def ask(task: Task) -> Ask:
    """Prepare."""
    context = SessionContext(SessionConfig(_SETTINGS))
    read_as_s3(context, task.source, task.files[0])

    def asked(site: Site) -> Any:  # noqa: ANN401 - pyarrow has no types
        tables = [f"file{number}" for number in range(len(task.files))]
        if not context.table_exist(tables[0]):
            context.register_parquet(tables[0], f"s3://{task.files[0]}")
            schema = context.table(tables[0]).schema()
            for table, file in zip(tables[1:], task.files[1:], strict=True):
                context.register_parquet(table, f"s3://{file}", schema=schema)
        chosen = ", ".join(COLUMNS)
        each = [f"SELECT {chosen} FROM {table} WHERE {site.where}" for table in tables]
        return context.sql(" UNION ALL ".join(each)).to_arrow_table()

    return asked


if __name__ == "__main__":
    start(ask)
