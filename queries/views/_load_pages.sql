-- Add the pages of row groups from a file of JSON, a line for each row group. first_rows and offsets also have the
-- end of the last page.
INSERT INTO derived.pages BY NAME
SELECT
  path, crawl, subset, row_group,
  unnest(range(len(offsets) - 1)) AS page,
  unnest(first_rows[:-2]) AS first_row_index,
  unnest(first_rows[2:]) - unnest(first_rows[:-2]) AS num_rows,
  unnest(null_counts) AS null_count,
  unnest(min_keys) AS min_key,
  unnest(max_keys) AS max_key,
  unnest(offsets[:-2]) AS file_offset,
  unnest(offsets[2:]) - unnest(offsets[:-2]) AS compressed_page_size
FROM read_json($rows, columns = {
  path: 'VARCHAR', crawl: 'VARCHAR', subset: 'VARCHAR', row_group: 'INTEGER', first_rows: 'BIGINT[]',
  offsets: 'BIGINT[]', null_counts: 'BIGINT[]', min_keys: 'VARCHAR[]', max_keys: 'VARCHAR[]'
});
