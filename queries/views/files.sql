CREATE OR REPLACE VIEW files AS
SELECT
  path, crawl, subset, file_size, footer_size, num_rows, created_by, codec, len(column_names) AS num_columns,
  column_names, utc_times, has_page_index, etag, last_modified, source, harvested_at
FROM derived.files
LEFT JOIN derived.schemas USING ("schema");

COMMENT ON VIEW files IS 'Every index file with a stored footer.';
COMMENT ON COLUMN files.path IS 'Path, relative to the source.';
COMMENT ON COLUMN files.crawl IS 'Name of its crawl.';
COMMENT ON COLUMN files.subset IS 'warc (successful fetches), crawldiagnostics (the rest) or robotstxt.';
COMMENT ON COLUMN files.file_size IS 'Bytes of the file.';
COMMENT ON COLUMN files.footer_size IS 'Bytes of its footer, without length and magic.';
COMMENT ON COLUMN files.num_rows IS 'Number of captures.';
COMMENT ON COLUMN files.created_by IS 'Name and version of the writer.';
COMMENT ON COLUMN files.codec IS 'Compression of its column chunks; several are joined by +.';
COMMENT ON COLUMN files.num_columns IS 'Number of columns in the file, so without crawl and subset, which come from the path.';
COMMENT ON COLUMN files.column_names IS 'Names of its columns in the order of the file.';
COMMENT ON COLUMN files.utc_times IS 'Whether the file declares fetch_time as UTC; it is UTC in all files.';
COMMENT ON COLUMN files.has_page_index IS 'Whether the key column has a page index in every row group.';
COMMENT ON COLUMN files.etag IS 'ETag that the source sent.';
COMMENT ON COLUMN files.last_modified IS 'Last-Modified that the source sent.';
COMMENT ON COLUMN files.source IS 'Source of the footer.';
COMMENT ON COLUMN files.harvested_at IS 'Time at which the footer was fetched, UTC.';
