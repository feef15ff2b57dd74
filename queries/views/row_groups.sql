CREATE OR REPLACE VIEW row_groups AS
SELECT
  path, crawl, subset, row_group, num_rows, total_byte_size, file_offset, total_compressed_size,
  min_key AS min_url_surtkey, max_key AS max_url_surtkey, bounds_from,
  make_timestamp(first_fetch * 1000) AS first_fetch, make_timestamp(last_fetch * 1000) AS last_fetch
FROM derived.row_groups;

COMMENT ON VIEW row_groups IS 'Every row group of the stored files, with bounds of its keys.';
COMMENT ON COLUMN row_groups.path IS 'File, relative to the source.';
COMMENT ON COLUMN row_groups.crawl IS 'Name of the crawl.';
COMMENT ON COLUMN row_groups.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN row_groups.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN row_groups.num_rows IS 'Number of captures.';
COMMENT ON COLUMN row_groups.total_byte_size IS 'Bytes of its pages after decompression.';
COMMENT ON COLUMN row_groups.file_offset IS 'Offset of its first page; null if it has none.';
COMMENT ON COLUMN row_groups.total_compressed_size IS 'Bytes of its pages in the file.';
COMMENT ON COLUMN row_groups.min_url_surtkey IS 'Lower bound of its keys; null if unknown.';
COMMENT ON COLUMN row_groups.max_url_surtkey IS 'Upper bound of its keys; null if unknown.';
COMMENT ON COLUMN row_groups.bounds_from IS
  'footer; footer (signed), the deprecated statistics of old writers; page index; scan, by a backfill that read the keys; or missing.';
COMMENT ON COLUMN row_groups.first_fetch IS 'Lower bound of fetch_time, UTC; null if the footer has none.';
COMMENT ON COLUMN row_groups.last_fetch IS 'Upper bound of fetch_time, UTC; null if the footer has none.';
