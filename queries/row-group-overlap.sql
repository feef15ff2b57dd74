-- How far the row groups of a file overlap: for each crawl, the average number of row groups of a file that may contain
-- a key. 1 means sorted: a key is in one row group. Until the middle of 2022 files were two sorted streams zipped
-- together, and a key may be in nearly all of them.
WITH pairs AS (
  SELECT a.crawl, a.subset, a.path, a.row_group, count(b.row_group) AS holding
  FROM row_groups AS a
  LEFT JOIN row_groups AS b
    ON b.path = a.path AND b.min_url_surtkey <= a.min_url_surtkey AND b.max_url_surtkey >= a.min_url_surtkey
  WHERE a.min_url_surtkey IS NOT NULL
  GROUP BY ALL
)
SELECT
  crawl,
  subset,
  count(*) AS row_groups,
  round(avg(holding), 2) AS row_groups_holding_a_key,
  max(holding) AS at_most
FROM pairs
GROUP BY ALL
ORDER BY crawl DESC, subset;
