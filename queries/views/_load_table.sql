-- Add the files and row groups of a crawl from its table.
INSERT INTO derived.files BY NAME
SELECT DISTINCT ON (path)
  path, crawl, subset, version, file_size, footer_size, etag, last_modified, source,
  try_cast(taken AS TIMESTAMP) AS harvested_at, file_num_rows AS num_rows, created_by, file_codec AS codec, "schema",
  utc_times, has_page_index
FROM read_parquet($table, hive_partitioning = false)
ORDER BY path;

INSERT INTO derived.row_groups BY NAME
SELECT
  path, crawl, subset, row_group, num_rows, total_byte_size, total_compressed_size, file_offset, min_key, max_key,
  bounds_from, first_fetch, last_fetch
FROM read_parquet($table, hive_partitioning = false)
WHERE row_group IS NOT NULL
ORDER BY path, row_group;
