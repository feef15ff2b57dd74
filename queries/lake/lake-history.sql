-- What each export changed in the lake: a row a crawl that was new or another than before.
-- As it was then: FROM cc.captures_raw AT (VERSION => 5).
SELECT snapshot_id, snapshot_time, schema_version, commit_message, changes
FROM cc.snapshots()
ORDER BY snapshot_id;
