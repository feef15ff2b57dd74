-- The row groups of a crawl and subset in the file of bounds, in its order; file is the place of a file in bounds_files.
WITH known AS (
  SELECT
    place AS file, row_group, footer_offset, g.num_rows, first_fetch, last_fetch,
    coalesce(k.min_key, g.min_key) AS least, coalesce(k.max_key, g.max_key) AS greatest,
    coalesce(coalesce(k.bounds_from, g.bounds_from) = 'footer (signed)', false) AS signed
  FROM derived.row_groups AS g
  JOIN bounds_files USING (file)
  LEFT JOIN derived.key_intervals AS k USING (file, row_group)
  WHERE crawl = {crawl} AND subset = {subset}
)
SELECT
  * EXCLUDE (least, greatest),
  CASE WHEN greatest IS NOT NULL THEN least END AS min_key,
  CASE WHEN least IS NOT NULL THEN greatest END AS max_key
FROM known
ORDER BY min_key NULLS FIRST, file, row_group;
