-- Which row groups may hold a key: --param key=KEY, such as 'org,commoncrawl)/' (without it, example.com's).
-- Row groups whose keys are not known may hold any. For more than one key, and for reading them: catalogue query.
SELECT crawl, subset, path, row_group, num_rows, total_compressed_size, min_url_surtkey, max_url_surtkey, bounds_from
FROM row_groups
WHERE
  coalesce(getvariable('key'), 'com,example)/') BETWEEN min_url_surtkey AND max_url_surtkey
  OR min_url_surtkey IS NULL
ORDER BY crawl DESC, subset, path, row_group;
