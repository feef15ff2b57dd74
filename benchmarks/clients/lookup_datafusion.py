"""DataFusion, through its S3 store, as its HTTP store refuses ``http://``; what is asked of the server is the same.

Settings are its own: to push filters down, or to fetch less or more of the file's end, brought nothing here. The
context stays, and with it footer and page index.
"""

from datafusion import SessionContext  # type: ignore[import-not-found]
from datafusion.object_store import AmazonS3  # type: ignore[import-not-found]

from benchmarks.clients.lookup_asking import Question, Steps, start, twice


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


def datafusion(question: Question) -> Steps:
    """Prepare."""
    context = SessionContext()
    read_as_s3(context, question.source, question.file)

    def ask() -> int:
        if not context.table_exist("lookup"):
            context.register_parquet("lookup", f"s3://{question.file}")
        return int(context.sql(question.sql).to_arrow_table().num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(datafusion)
