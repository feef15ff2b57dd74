-- How many pages of a site each crawl has; first run: catalogue export ducklake
-- (Of each crawl only the files are read that may contain keys of the site, one or two.)
-- --param pattern=PATTERN sets the site; the default is *.example.com.
SELECT
  crawl,
  count(*) AS captures,
  count(DISTINCT url_surtkey) AS pages,
  min(fetch_time) AS first_fetch,
  max(fetch_time) AS last_fetch,
  mode(content_mime_detected) AS usual_type
FROM cc.captures
WHERE subset = 'warc' AND cc.surt_match(url_surtkey, coalesce(getvariable('pattern'), '*.example.com'))
GROUP BY crawl
ORDER BY crawl DESC;
