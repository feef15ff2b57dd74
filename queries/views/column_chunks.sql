CREATE OR REPLACE VIEW column_chunks AS
SELECT * FROM derived.column_chunks;

COMMENT ON VIEW column_chunks IS
  'Every column of every row group, of crawls selected by: catalogue sql --column-chunks CRAWL.';
COMMENT ON COLUMN column_chunks.path IS 'File, relative to the source.';
COMMENT ON COLUMN column_chunks.crawl IS 'Name of the crawl.';
COMMENT ON COLUMN column_chunks.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN column_chunks.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN column_chunks.column_name IS 'Name of the column.';
COMMENT ON COLUMN column_chunks.physical_type IS 'As Parquet names it.';
COMMENT ON COLUMN column_chunks.codec IS 'Compression.';
COMMENT ON COLUMN column_chunks.num_values IS 'Values, nulls included.';
COMMENT ON COLUMN column_chunks.null_count IS 'Nulls; null if unknown.';
COMMENT ON COLUMN column_chunks.file_offset IS 'Where its first page, of a dictionary or of data, starts.';
COMMENT ON COLUMN column_chunks.total_compressed_size IS 'Bytes from there on.';
COMMENT ON COLUMN column_chunks.total_uncompressed_size IS 'Bytes of its pages, uncompressed.';
COMMENT ON COLUMN column_chunks."min" IS 'No value is less; of text only.';
COMMENT ON COLUMN column_chunks."max" IS 'No value is greater; of text only.';
COMMENT ON COLUMN column_chunks.has_page_index IS 'Whether it has both indexes of its pages.';
