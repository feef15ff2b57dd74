CREATE OR REPLACE VIEW crawls AS
WITH
  names AS (
    SELECT crawl FROM derived.crawls
    UNION SELECT crawl FROM derived.listed
    UNION SELECT crawl FROM derived.files
    UNION SELECT crawl FROM derived.block_lists
  ),
  listed AS (SELECT crawl, sum(files)::BIGINT AS files FROM derived.listed GROUP BY crawl),
  stored AS (
    SELECT
      crawl, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS file_size,
      list(DISTINCT subset ORDER BY subset) AS subsets
    FROM derived.files GROUP BY crawl
  ),
  failed AS (SELECT crawl, count(*) AS files FROM derived.failures GROUP BY crawl)
SELECT
  names.crawl, c.name, c.first_fetch, c.last_fetch, coalesce(c.has_table, true) AS has_table,
  listed.files AS files_listed, coalesce(stored.files, 0) AS files_harvested, coalesce(failed.files, 0) AS files_failed,
  coalesce(stored.subsets, []) AS subsets, stored.num_rows, stored.file_size,
  block_lists.blocks
FROM names
LEFT JOIN derived.crawls AS c USING (crawl)
LEFT JOIN listed USING (crawl)
LEFT JOIN stored USING (crawl)
LEFT JOIN failed USING (crawl)
LEFT JOIN derived.block_lists USING (crawl)
ORDER BY names.crawl DESC;

COMMENT ON VIEW crawls IS 'Every known crawl, newest first, and how much of its index is stored.';
COMMENT ON COLUMN crawls.crawl IS 'Name, such as CC-MAIN-2022-05.';
COMMENT ON COLUMN crawls.name IS 'Title in the list of crawls.';
COMMENT ON COLUMN crawls.first_fetch IS 'Time of its first fetch, UTC, by the list of crawls.';
COMMENT ON COLUMN crawls.last_fetch IS 'Time of its last fetch, UTC, by the list of crawls.';
COMMENT ON COLUMN crawls.has_table IS 'False for the ARC crawls until 2012, which have no columnar index.';
COMMENT ON COLUMN crawls.files_listed IS 'Number of index files in its manifest, of all subsets; null until the manifest was read.';
COMMENT ON COLUMN crawls.files_harvested IS 'Number of index files with a stored footer.';
COMMENT ON COLUMN crawls.files_failed IS 'Number of index files whose footer could not be fetched.';
COMMENT ON COLUMN crawls.subsets IS 'Subsets with stored files.';
COMMENT ON COLUMN crawls.num_rows IS 'Number of captures in the files with stored footers.';
COMMENT ON COLUMN crawls.file_size IS 'Bytes of the files with stored footers.';
COMMENT ON COLUMN crawls.blocks IS 'Number of blocks of its CDX index, if their list is stored; see the view blocks.';
