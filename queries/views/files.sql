CREATE OR REPLACE VIEW files AS
SELECT
  path, crawl, subset, file_size, footer_size, num_rows, created_by, codec, len(column_names) AS num_columns,
  column_names, utc_times, has_page_index, etag, last_modified, source, harvested_at
FROM derived.files
LEFT JOIN derived.schemas USING ("schema");

COMMENT ON VIEW files IS 'Every index file with a stored footer.';
COMMENT ON COLUMN files.path IS 'Relative to the source.';
COMMENT ON COLUMN files.crawl IS 'Name of its crawl.';
COMMENT ON COLUMN files.subset IS 'warc (successful fetches), crawldiagnostics (the rest) or robotstxt.';
COMMENT ON COLUMN files.file_size IS 'Bytes.';
COMMENT ON COLUMN files.footer_size IS 'Bytes of its footer, without length and magic.';
COMMENT ON COLUMN files.num_rows IS 'Captures.';
COMMENT ON COLUMN files.created_by IS 'The writer, as it calls itself.';
COMMENT ON COLUMN files.codec IS 'Compression of its column chunks; several are joined by +.';
COMMENT ON COLUMN files.num_columns IS 'Columns; those of the path, crawl and subset, are not in the file.';
COMMENT ON COLUMN files.column_names IS 'Names of its columns in the order of the file.';
COMMENT ON COLUMN files.utc_times IS 'Whether fetch_time is declared an instant; where it is not, it is UTC all the same.';
COMMENT ON COLUMN files.has_page_index IS 'Whether the key column has a page index in every row group.';
COMMENT ON COLUMN files.etag IS 'As the source gave it.';
COMMENT ON COLUMN files.last_modified IS 'As the source gave it.';
COMMENT ON COLUMN files.source IS 'Where the footer was taken from.';
COMMENT ON COLUMN files.harvested_at IS 'When, UTC.';
