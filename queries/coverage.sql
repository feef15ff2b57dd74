-- How much of each crawl's index is stored, and how many row groups have known keys.
-- One row per crawl and subset. files_listed is null if the manifest was not read.
-- requested: whether a harvest requested the subset.
SELECT
  coalesce(f.crawl, l.crawl) AS crawl,
  coalesce(f.subset, l.subset) AS subset,
  l.files AS files_listed,
  coalesce(f.files, 0) AS files_harvested,
  coalesce(x.files, 0) AS files_failed,
  coalesce(l.requested OR f.files > 0 OR x.files > 0, false) AS requested,
  coalesce(g.row_groups, 0) AS row_groups,
  coalesce(g.without_bounds, 0) AS without_bounds,
  coalesce(f.num_rows, 0) AS num_rows,
  coalesce(f.file_size, 0) AS file_size
FROM (
  SELECT crawl, subset, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS file_size
  FROM files GROUP BY ALL
) AS f
FULL JOIN derived.listed AS l ON l.crawl = f.crawl AND l.subset = f.subset
LEFT JOIN (
  SELECT crawl, subset, count(*) AS row_groups, count(*) FILTER (bounds_from = 'missing') AS without_bounds
  FROM row_groups GROUP BY ALL
) AS g ON g.crawl = f.crawl AND g.subset = f.subset
LEFT JOIN (
  SELECT crawl, subset, count(*) AS files FROM derived.failures GROUP BY ALL
) AS x ON x.crawl = coalesce(f.crawl, l.crawl) AND x.subset = coalesce(f.subset, l.subset)
ORDER BY crawl DESC, subset;
