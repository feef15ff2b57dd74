-- What each export changed in the lake: after the first two rows, a row for each crawl that was new or changed.
-- Query an earlier state with: FROM cc.captures_raw AT (VERSION => 5). Files that were replaced since then cannot be read.
SELECT snapshot_id, snapshot_time, schema_version, commit_message, changes
FROM cc.snapshots()
ORDER BY snapshot_id;
