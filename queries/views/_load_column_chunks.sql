-- Add column chunks; $rows is a list of objects of JSON.
INSERT INTO derived.column_chunks BY NAME
SELECT unnest(from_json($rows, '[{
  "path": "VARCHAR", "crawl": "VARCHAR", "subset": "VARCHAR", "row_group": "INTEGER", "column_name": "VARCHAR",
  "physical_type": "VARCHAR", "codec": "VARCHAR", "num_values": "BIGINT", "null_count": "BIGINT",
  "file_offset": "BIGINT", "total_compressed_size": "BIGINT", "total_uncompressed_size": "BIGINT", "min": "VARCHAR",
  "max": "VARCHAR", "has_page_index": "BOOLEAN"
}]'), recursive := true);
