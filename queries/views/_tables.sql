-- The tables of the metadata database, made from the tables of crawls and the store. Query the views in the other files.
CREATE SCHEMA IF NOT EXISTS derived;  -- filled by the tool

CREATE TABLE IF NOT EXISTS derived.meta (key VARCHAR, value VARCHAR);
CREATE TABLE IF NOT EXISTS derived.crawls (
  crawl VARCHAR, name VARCHAR, first_fetch TIMESTAMP, last_fetch TIMESTAMP, has_table BOOLEAN
);
CREATE TABLE IF NOT EXISTS derived.listed (crawl VARCHAR, subset VARCHAR, files INTEGER, requested BOOLEAN);
CREATE TABLE IF NOT EXISTS derived.failures (
  path VARCHAR, crawl VARCHAR, subset VARCHAR, reason VARCHAR, failed_at TIMESTAMP
);
-- The tables of crawls that are shown, by the checksums of their directories, and the last page index that is.
CREATE TABLE IF NOT EXISTS derived.tables (
  crawl VARCHAR, checksum BIGINT, indexes VARCHAR, last_index BIGINT, column_chunks BOOLEAN
);
CREATE TABLE IF NOT EXISTS derived.files (
  path VARCHAR, crawl VARCHAR, subset VARCHAR, version BLOB, file_size BIGINT, footer_size BIGINT, etag VARCHAR,
  last_modified VARCHAR, source VARCHAR, harvested_at TIMESTAMP, num_rows BIGINT, created_by VARCHAR, codec VARCHAR,
  "schema" VARCHAR, utc_times BOOLEAN, has_page_index BOOLEAN
);
-- The combinations of columns that files have, by the digest of a schema.
CREATE TABLE IF NOT EXISTS derived.schemas ("schema" VARCHAR, column_names VARCHAR[], column_kinds VARCHAR[]);
CREATE TABLE IF NOT EXISTS derived.row_groups (
  path VARCHAR, crawl VARCHAR, subset VARCHAR, row_group INTEGER, num_rows BIGINT, total_byte_size BIGINT,
  total_compressed_size BIGINT, file_offset BIGINT, min_key VARCHAR, max_key VARCHAR, bounds_from VARCHAR,
  first_fetch BIGINT, last_fetch BIGINT
);
CREATE TABLE IF NOT EXISTS derived.column_chunks (
  path VARCHAR, crawl VARCHAR, subset VARCHAR, row_group INTEGER, column_name VARCHAR, physical_type VARCHAR,
  codec VARCHAR, num_values BIGINT, null_count BIGINT, file_offset BIGINT, total_compressed_size BIGINT,
  total_uncompressed_size BIGINT, "min" VARCHAR, "max" VARCHAR, has_page_index BOOLEAN
);
-- A row for each row group. first_rows and offsets also have the end of the last page.
CREATE TABLE IF NOT EXISTS derived.pages (
  path VARCHAR, crawl VARCHAR, subset VARCHAR, row_group INTEGER, first_rows BIGINT[], offsets BIGINT[],
  null_counts BIGINT[], min_keys VARCHAR[], max_keys VARCHAR[]
);
-- Stored lists of blocks of the CDX index, and the columns of their files.
CREATE TABLE IF NOT EXISTS derived.block_lists (crawl VARCHAR, blocks BIGINT);
CREATE TABLE IF NOT EXISTS derived.no_blocks (
  crawl VARCHAR, number INTEGER, first_key VARCHAR, first_time VARCHAR, shard INTEGER, "offset" BIGINT, length INTEGER
);
-- The columns of a file of column values, for a database without one.
CREATE TABLE IF NOT EXISTS derived.no_values (
  filename VARCHAR, column_name VARCHAR, value VARCHAR, row_groups INTEGER[]
);
