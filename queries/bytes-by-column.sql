-- What each column costs to read: stored bytes, their share of all bytes, and the compression ratio.
-- It covers the crawls whose column chunks are loaded: catalogue sql bytes-by-column --column-chunks CC-MAIN-2022-05
SELECT
  crawl,
  column_name,
  sum(total_compressed_size)::BIGINT AS bytes,
  round(100 * bytes / sum(bytes) OVER (PARTITION BY crawl), 2) AS percent,
  round(sum(total_uncompressed_size) / bytes, 1) AS ratio,
  list(DISTINCT codec ORDER BY codec) AS codecs
FROM column_chunks
GROUP BY crawl, column_name
ORDER BY crawl DESC, bytes DESC, column_name;
