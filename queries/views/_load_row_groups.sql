-- Add the row groups of a table.
INSERT INTO derived.row_groups BY NAME
SELECT
  file, row_group, i.num_rows, total_byte_size, total_compressed_size, min_key, max_key, bounds_from,
  first_fetch, last_fetch, file_offset
FROM incoming AS i JOIN derived.files AS f USING (path)
WHERE row_group IS NOT NULL
ORDER BY file, row_group;
