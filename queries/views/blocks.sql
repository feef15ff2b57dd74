CREATE OR REPLACE VIEW blocks AS
SELECT
  crawl, number, first_key, try_strptime(first_time, '%Y%m%d%H%M%S') AS first_time,
  printf('cc-index/collections/%s/indexes/cdx-%05d.gz', crawl, shard) AS path, "offset", length
FROM $lists;

COMMENT ON VIEW blocks IS 'Blocks of the CDX index of crawls whose list of blocks is stored, in the folder blocks next to this file. If these were moved since it was written: SET VARIABLE catalogue_folder = ''/new/place'';';
COMMENT ON COLUMN blocks.crawl IS 'Name, such as CC-MAIN-2022-05.';
COMMENT ON COLUMN blocks.number IS 'Number of the block in its crawl, from 1, in the order of keys.';
COMMENT ON COLUMN blocks.first_key IS 'Key of the first line; earlier captures of this key may be at the end of the block before.';
COMMENT ON COLUMN blocks.first_time IS 'Time of the first line, UTC; null if it is not a time.';
COMMENT ON COLUMN blocks.path IS 'Path of the file with the block, relative to the source.';
COMMENT ON COLUMN blocks.offset IS 'First byte of the block in its file.';
COMMENT ON COLUMN blocks.length IS 'Bytes of the block, which is a gzip member of about 3,000 lines.';
