-- The eras of the schema: which crawls have the same columns, by the same writer, with the same codec.
SELECT
  min(crawl) AS first_crawl,
  max(crawl) AS last_crawl,
  count(DISTINCT crawl) AS crawls,
  count(*) AS files,
  num_columns,
  codec,
  utc_times,
  has_page_index,
  created_by,
  list_sort(any_value(column_names)) AS column_names
FROM files
GROUP BY num_columns, codec, utc_times, has_page_index, created_by, list_sort(column_names)
ORDER BY first_crawl;
