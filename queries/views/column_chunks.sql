CREATE OR REPLACE VIEW column_chunks AS
SELECT * FROM derived.column_chunks;

COMMENT ON VIEW column_chunks IS
  'Every column of every row group, of the crawls that were selected by: catalogue sql --column-chunks CRAWL.';
COMMENT ON COLUMN column_chunks.path IS 'File, relative to the source.';
COMMENT ON COLUMN column_chunks.crawl IS 'Name of the crawl.';
COMMENT ON COLUMN column_chunks.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN column_chunks.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN column_chunks.column_name IS 'Name of the column.';
COMMENT ON COLUMN column_chunks.physical_type IS 'Physical type, as named in Parquet.';
COMMENT ON COLUMN column_chunks.codec IS 'Compression.';
COMMENT ON COLUMN column_chunks.num_values IS 'Number of values, including nulls.';
COMMENT ON COLUMN column_chunks.null_count IS 'Number of nulls; null if unknown.';
COMMENT ON COLUMN column_chunks.file_offset IS 'Offset of its first page, which may be a dictionary page.';
COMMENT ON COLUMN column_chunks.total_compressed_size IS 'Bytes of its pages in the file.';
COMMENT ON COLUMN column_chunks.total_uncompressed_size IS 'Bytes of its pages after decompression.';
COMMENT ON COLUMN column_chunks."min" IS 'Lower bound of its values; null if unknown, or if they are not text.';
COMMENT ON COLUMN column_chunks."max" IS 'Upper bound of its values; null if unknown, or if they are not text.';
COMMENT ON COLUMN column_chunks.has_page_index IS 'Whether it has a page index (column index and offset index).';
