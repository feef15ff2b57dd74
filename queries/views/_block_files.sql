-- The rows of the stored lists of blocks, Parquet files next to the store; see the view blocks. FILES are their paths.
CREATE OR REPLACE VIEW derived.block_rows AS SELECT * FROM read_parquet(FILES);
