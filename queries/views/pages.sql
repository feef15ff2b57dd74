CREATE OR REPLACE VIEW pages AS
SELECT
  path, crawl, subset, row_group, page, first_row_index, num_rows, null_count,
  min_key AS min_url_surtkey, max_key AS max_url_surtkey, file_offset, compressed_page_size
FROM derived.pages;

COMMENT ON VIEW pages IS
  'Pages of the key column, of row groups with a stored page index: queries and harvest --pages fetch it.';
COMMENT ON COLUMN pages.path IS 'File, relative to the source.';
COMMENT ON COLUMN pages.crawl IS 'Name of the crawl.';
COMMENT ON COLUMN pages.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN pages.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN pages.page IS 'Number within the column chunk, from 0.';
COMMENT ON COLUMN pages.first_row_index IS 'Number within the row group of its first row, from 0.';
COMMENT ON COLUMN pages.num_rows IS 'Captures.';
COMMENT ON COLUMN pages.null_count IS 'Captures without a key; null if unknown.';
COMMENT ON COLUMN pages.min_url_surtkey IS 'No key is less; often cut short, and null if there is none.';
COMMENT ON COLUMN pages.max_url_surtkey IS 'No key is greater; often cut short and then incremented, and null if there is none.';
COMMENT ON COLUMN pages.file_offset IS 'Where it starts.';
COMMENT ON COLUMN pages.compressed_page_size IS 'Bytes of it, its header among them.';
