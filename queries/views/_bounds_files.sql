-- What the file of bounds says of files, numbered within each crawl and subset by path.
CREATE OR REPLACE TEMP TABLE bounds_files AS
WITH
  least AS (
    SELECT file, CASE WHEN count(min_key) = count(*) THEN min(min_key) ELSE '' END AS file_least
    FROM derived.row_groups GROUP BY file
  ),
  combinations AS (
    SELECT columns AS combination, row_number() OVER (ORDER BY min(file)) - 1 AS columns
    FROM derived.files GROUP BY ALL
  )
SELECT
  file, row_number() OVER (PARTITION BY crawl, subset ORDER BY path) - 1 AS place,
  crawl, subset, path, version, footer_rest, file_least, c.columns
FROM derived.files AS f JOIN least USING (file) JOIN combinations AS c ON f.columns = combination;
