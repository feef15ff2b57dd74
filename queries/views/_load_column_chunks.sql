-- Add the column chunks of a crawl from its table, the file $table.
INSERT INTO derived.column_chunks BY NAME
SELECT
  path, crawl, subset, row_group, c.column_name, c.physical_type, c.codec, c.num_values, c.null_count, c.file_offset,
  c.total_compressed_size, c.total_uncompressed_size,
  CASE WHEN c.physical_type = 'BYTE_ARRAY' THEN decode(c."min") END AS "min",
  CASE WHEN c.physical_type = 'BYTE_ARRAY' THEN decode(c."max") END AS "max",
  c.column_index_offset IS NOT NULL AND c.offset_index_offset IS NOT NULL AS has_page_index
FROM (SELECT path, crawl, subset, row_group, unnest(chunks) AS c FROM read_parquet($table));
