-- Add the files of a table that are not shown yet. $numbers are the numbers of its schemas in derived.columns.
INSERT INTO derived.files BY NAME
SELECT
  (SELECT coalesce(max(file), -1) FROM derived.files) + row_number() OVER (ORDER BY path) AS file,
  path, crawl, subset, version, file_size, footer_size, etag, last_modified, source,
  try_cast(taken AS TIMESTAMP) AS harvested_at, file_num_rows AS num_rows, created_by, file_codec AS codec,
  $numbers[columns + 1] AS columns, utc_times, has_page_index
FROM (SELECT DISTINCT ON (path) * FROM incoming)
ANTI JOIN derived.files USING (path);
