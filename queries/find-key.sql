-- Which row groups may contain a key: --param key=KEY, such as 'org,commoncrawl)/'; the default is that of example.com.
-- Row groups without bounds may contain any key. For several keys, or to read the captures, use catalogue query.
SELECT crawl, subset, path, row_group, num_rows, total_compressed_size, min_url_surtkey, max_url_surtkey, bounds_from
FROM row_groups
WHERE
  coalesce(getvariable('key'), 'com,example)/') BETWEEN min_url_surtkey AND max_url_surtkey
  OR min_url_surtkey IS NULL
ORDER BY crawl DESC, subset, path, row_group;
