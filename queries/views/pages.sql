CREATE OR REPLACE VIEW pages AS
SELECT
  path, crawl, subset, row_group,
  unnest(range(len(offsets) - 1))::INTEGER AS page,
  unnest(first_rows[:-2]) AS first_row_index,
  unnest(first_rows[2:]) - unnest(first_rows[:-2]) AS num_rows,
  unnest(null_counts) AS null_count,
  unnest(min_keys) AS min_url_surtkey,
  unnest(max_keys) AS max_url_surtkey,
  unnest(offsets[:-2]) AS file_offset,
  unnest(offsets[2:]) - unnest(offsets[:-2]) AS compressed_page_size
FROM derived.pages;

COMMENT ON VIEW pages IS
  'Pages of the key column in row groups whose page index is stored; queries and harvest --pages fetch page indexes.';
COMMENT ON COLUMN pages.path IS 'File, relative to the source.';
COMMENT ON COLUMN pages.crawl IS 'Name of the crawl.';
COMMENT ON COLUMN pages.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN pages.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN pages.page IS 'Number within the column chunk, from 0.';
COMMENT ON COLUMN pages.first_row_index IS 'Number of its first row within the row group, from 0.';
COMMENT ON COLUMN pages.num_rows IS 'Number of captures.';
COMMENT ON COLUMN pages.null_count IS 'Number of captures without a key; null if unknown.';
COMMENT ON COLUMN pages.min_url_surtkey IS 'Lower bound of its keys, often truncated; null if the page has no key.';
COMMENT ON COLUMN pages.max_url_surtkey IS 'Upper bound of its keys, often truncated and incremented; null if the page has no key.';
COMMENT ON COLUMN pages.file_offset IS 'Offset of its first byte in the file.';
COMMENT ON COLUMN pages.compressed_page_size IS 'Bytes in the file, including its header.';
