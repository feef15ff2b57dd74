-- The row groups of the file of bounds, in its order.
WITH
  least AS (
    SELECT file, CASE WHEN count(min_key) = count(*) THEN min(min_key) ELSE '' END AS file_least
    FROM derived.row_groups GROUP BY file
  ),
  combinations AS (
    SELECT column_names, column_kinds, row_number() OVER (ORDER BY min(file)) - 1 AS columns
    FROM derived.files GROUP BY ALL
  ),
  known AS (
    SELECT
      crawl, subset, path, version, footer_rest, file_least, columns, row_group, footer_offset, g.num_rows,
      first_fetch, last_fetch, coalesce(k.min_key, g.min_key) AS least, coalesce(k.max_key, g.max_key) AS greatest,
      coalesce(coalesce(k.bounds_from, g.bounds_from) = 'footer (signed)', false) AS signed
    FROM derived.row_groups AS g
    JOIN derived.files USING (file)
    JOIN least USING (file)
    JOIN combinations USING (column_names, column_kinds)
    LEFT JOIN derived.key_intervals AS k USING (file, row_group)
  )
SELECT
  * EXCLUDE (least, greatest),
  CASE WHEN greatest IS NOT NULL THEN least END AS min_key,
  CASE WHEN least IS NOT NULL THEN greatest END AS max_key,
  max(CASE WHEN least IS NOT NULL THEN greatest END) OVER (
    PARTITION BY crawl, subset ORDER BY CASE WHEN greatest IS NOT NULL THEN least END NULLS FIRST, path, row_group
    ROWS UNBOUNDED PRECEDING
  ) AS reached
FROM known
ORDER BY crawl, subset, min_key NULLS FIRST, path, row_group;
