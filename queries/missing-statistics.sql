-- Row groups whose keys are unknown, so every query reads them.
-- CC-MAIN-2017-43 to CC-MAIN-2018-43 have none of the statistics that readers use. In other crawls single row groups
-- lack them, because parquet-mr omits bounds that are longer than 4 kB together.
SELECT
  crawl,
  subset,
  count(*) FILTER (bounds_from = 'missing') AS without_bounds,
  count(*) AS row_groups,
  sum(total_compressed_size) FILTER (bounds_from = 'missing') AS bytes_without_bounds,
  list(DISTINCT bounds_from ORDER BY bounds_from) AS bounds_from
FROM row_groups
GROUP BY ALL
ORDER BY without_bounds DESC, crawl, subset;
