-- Records events at the end of a transaction. They become visible in the order of their numbers, so transactions take numbers one
-- after the other: the lock is held until the transaction ends, and nothing else is read or written meanwhile. Beyond a number
-- of events of a job and kind, the oldest are removed, so that repeated events of one kind do not displace others.
CREATE FUNCTION record_events(added TEXT, kept BIGINT, lock BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS '
DECLARE
    series RECORD;
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO events (job, at_ms, kind, text)
        SELECT job, at_ms, kind, text FROM json_to_recordset(CAST(added AS JSON))
            AS added_events (job TEXT, at_ms BIGINT, kind TEXT, text TEXT);
    FOR series IN SELECT DISTINCT job, kind FROM json_to_recordset(CAST(added AS JSON)) AS added_events (job TEXT, kind TEXT)
    LOOP
        DELETE FROM events WHERE job = series.job AND kind = series.kind AND sequence <=
            (SELECT sequence FROM events WHERE job = series.job AND kind = series.kind
             ORDER BY sequence DESC LIMIT 1 OFFSET kept);
    END LOOP;
    RETURN json_array_length(CAST(added AS JSON));
END';
