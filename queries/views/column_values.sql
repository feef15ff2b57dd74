CREATE OR REPLACE VIEW column_values AS
WITH
  -- Row groups are numbered through all paths of a file, in the order of paths.
  places AS (
    SELECT
      filename, path, row_group, row_number() OVER (PARTITION BY filename ORDER BY path, row_group) - 1 AS number
    FROM (SELECT filename, value AS path, unnest(row_groups) AS row_group FROM $values WHERE column_name IS NULL)
  ),
  found AS (
    SELECT filename, column_name, value, unnest(row_groups) AS number FROM $values WHERE column_name IS NOT NULL
  )
SELECT crawl, subset, path, row_group, column_name, value
FROM found JOIN places USING (filename, number) JOIN derived.files USING (path);

COMMENT ON VIEW column_values IS 'The values of columns in each row group, of crawls whose values were harvested: catalogue harvest --values COLUMN. They are in the folder tables next to this file; see the view blocks if these were moved.';
COMMENT ON COLUMN column_values.crawl IS 'Name, such as CC-MAIN-2022-05.';
COMMENT ON COLUMN column_values.subset IS 'warc, crawldiagnostics or robotstxt.';
COMMENT ON COLUMN column_values.path IS 'File, relative to the source.';
COMMENT ON COLUMN column_values.row_group IS 'Number within the file, from 0.';
COMMENT ON COLUMN column_values.column_name IS 'Name of the column; only those whose values are known.';
COMMENT ON COLUMN column_values.value IS 'A value that the row group contains, as text; null if it may contain rows without a value.';
