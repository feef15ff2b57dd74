-- Add the pages of row groups from a file of JSON, a line for each row group.
INSERT INTO derived.pages BY NAME
SELECT *
FROM read_json($rows, columns = {
  path: 'VARCHAR', crawl: 'VARCHAR', subset: 'VARCHAR', row_group: 'INTEGER', first_rows: 'BIGINT[]',
  offsets: 'BIGINT[]', null_counts: 'BIGINT[]', min_keys: 'VARCHAR[]', max_keys: 'VARCHAR[]'
});
