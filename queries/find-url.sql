-- Which row groups may contain captures of a site: --param pattern=PATTERN, such as 'example.com/blog/*'.
-- The default is *.example.com. Patterns are those of catalogue query, but only plain hosts and paths.
SELECT crawl, subset, path, row_group, num_rows, total_compressed_size, min_url_surtkey, max_url_surtkey, bounds_from
FROM row_groups
WHERE surt_overlaps(min_url_surtkey, max_url_surtkey, coalesce(getvariable('pattern'), '*.example.com'))
ORDER BY crawl DESC, subset, path, row_group;
