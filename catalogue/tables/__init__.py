"""Tables of metadata: for each crawl a Parquet file with a row per row group, made from the footers of the store."""
