"""Run by a Python that has pyspark: sums of rows of files, or of an Iceberg table, in time zones; one JSON a line."""

import json
import sys

from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

requested = json.load(sys.stdin)
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.jars": requested["jars"],
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for zone in requested["zones"]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    for question in requested["questions"]:
        if "table" in question:
            rows = spark.read.format("iceberg").load(question["table"])
        else:
            rows = spark.read.option("basePath", requested["base"]).parquet(*question["files"])
        sums = rows.where(question["where"]).selectExpr(
            "count(*) AS n", "sum(warc_record_offset) AS offsets", "sum(unix_millis(fetch_time)) AS times"
        )
        sys.stdout.write(json.dumps(sums.collect()[0].asDict()) + "\n")
spark.stop()
