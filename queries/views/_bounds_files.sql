-- What the file of bounds says of files.
CREATE OR REPLACE TEMP TABLE bounds_files AS
WITH
  least AS (
    SELECT file, CASE WHEN count(min_key) = count(*) THEN min(min_key) ELSE '' END AS file_least
    FROM derived.row_groups GROUP BY file
  ),
  combinations AS (
    SELECT column_names, column_kinds, row_number() OVER (ORDER BY min(file)) - 1 AS columns
    FROM derived.files GROUP BY ALL
  )
SELECT file, crawl, subset, path, version, footer_rest, file_least, columns
FROM derived.files JOIN least USING (file) JOIN combinations USING (column_names, column_kinds);
