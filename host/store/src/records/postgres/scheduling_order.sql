-- The order in which queued jobs start, and the running jobs with several hosts: what each placement reads.
CREATE INDEX jobs_by_scheduling_order ON jobs (priority DESC, preemptible, cursor) WHERE state = 'QUEUED' AND NOT paused;
CREATE INDEX jobs_of_several_hosts ON jobs (id) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND hosts > 1;

-- The first jobs that can start at a time, in scheduling order. A queue can grow faster than the statistics of the planner, which
-- would then read and sort all of it at each placement; without sorting, it reads the first entries of the index.
CREATE FUNCTION first_queued_jobs(now_ms BIGINT, jobs_max BIGINT) RETURNS SETOF jobs LANGUAGE plpgsql STABLE
    SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off AS '
BEGIN
    RETURN QUERY SELECT * FROM jobs WHERE state = ''QUEUED'' AND NOT paused
        AND (not_before_ms <= now_ms OR not_before_ms - backoff_ms > now_ms)
        ORDER BY priority DESC, preemptible, cursor LIMIT jobs_max;
END';
