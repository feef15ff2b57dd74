"""Run by a Python that has pyspark: sums of planned files, filtered by key, in two time zones; one JSON a line."""

import json
import sys

from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

asked = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
for zone in asked["zones"]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    for question in asked["questions"]:
        found = spark.read.option("basePath", asked["base"]).option("mergeSchema", "false").parquet(*question["files"])
        sums = found.where(question["where"]).selectExpr(
            "count(*) AS n", "sum(warc_record_offset) AS offsets", "sum(unix_millis(fetch_time)) AS times"
        )
        sys.stdout.write(json.dumps(sums.collect()[0].asDict()) + "\n")
spark.stop()
