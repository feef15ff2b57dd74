-- Add column chunks from a file of JSON, a line for each.
INSERT INTO derived.column_chunks BY NAME
FROM read_json($rows, columns = {
  path: 'VARCHAR', crawl: 'VARCHAR', subset: 'VARCHAR', row_group: 'INTEGER', column_name: 'VARCHAR',
  physical_type: 'VARCHAR', codec: 'VARCHAR', num_values: 'BIGINT', null_count: 'BIGINT', file_offset: 'BIGINT',
  total_compressed_size: 'BIGINT', total_uncompressed_size: 'BIGINT', "min": 'VARCHAR', "max": 'VARCHAR',
  has_page_index: 'BOOLEAN'
});
