"""Tables of metadata: for each crawl a Parquet file with a row per row group."""
