"""DataFusion with its S3 store, because its HTTP store refuses ``http://``; the requests are the same.

Default settings: filter pushdown or another size of the first request made no difference here. The
context stays open and caches footer and page index.
"""

from datafusion import SessionContext  # type: ignore[import-not-found]
from datafusion.object_store import AmazonS3  # type: ignore[import-not-found]

from benchmarks.clients.lookup_asking import Query, Steps, start, twice


def read_as_s3(context: SessionContext, source: str, file: str) -> None:
    """Let a context read files of the server as ``s3://FILE``; the first folder of ``file`` is their bucket."""
    bucket = file.partition("/")[0]
    store = AmazonS3(
        bucket_name=bucket,
        endpoint=source.rstrip("/"),
        allow_http=True,
        region="us-east-1",
        access_key_id="nobody",
        secret_access_key="nothing",
    )
    context.register_object_store("s3://", store, host=bucket)


def datafusion(query: Query) -> Steps:
    """Prepare."""
    context = SessionContext()
    read_as_s3(context, query.source, query.file)

    def ask() -> int:
        if not context.table_exist("lookup"):
            context.register_parquet("lookup", f"s3://{query.file}")
        return int(context.sql(query.sql).to_arrow_table().num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(datafusion)
