"""An index file once more, as Common Crawl's job writes it: ``write_by_spark FROM TO``; both are files."""

import sys
from pathlib import Path
from shutil import move
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession  # type: ignore[import-not-found]

_SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.hadoop.parquet.enable.dictionary": "true",
}
"""Of https://github.com/commoncrawl/cc-index-table, src/script/convert_url_index.sh, in 2022."""


def main() -> None:
    """Read and write."""
    source, target = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    with TemporaryDirectory(dir=Path(target).parent.parent) as folder, builder.getOrCreate() as spark:
        rows = spark.read.parquet(source).drop("crawl", "subset")  # which it took from the path
        rows.coalesce(1).sortWithinPartitions("url_surtkey").write.parquet(f"{folder}/out")
        (written,) = Path(folder).glob("out/*.parquet")
        move(written, target)


if __name__ == "__main__":
    main()
