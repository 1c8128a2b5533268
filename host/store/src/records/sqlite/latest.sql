-- The last point of each series by its newest attempt: listings show it, and looking for it would read the whole series.
CREATE TABLE latest (
    job TEXT NOT NULL REFERENCES jobs (id),
    name TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    step INTEGER NOT NULL,
    value REAL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

INSERT INTO latest (job, name, attempt, step, value, at_ms)
SELECT metrics.job, metrics.name, metrics.attempt, metrics.step, metrics.value, metrics.at_ms
FROM (SELECT job, name, max(attempt) AS attempt FROM metrics GROUP BY job, name) AS newest
JOIN metrics ON metrics.job = newest.job AND metrics.name = newest.name AND metrics.attempt = newest.attempt
    -- The newest attempt mostly did the last steps, so few are passed over from the end.
    AND metrics.step = (
        SELECT step FROM metrics
        WHERE job = newest.job AND name = newest.name AND attempt = newest.attempt
        ORDER BY step DESC LIMIT 1
    );

-- A job has an event for each checkpoint, and few that tell its phases and what it published.
CREATE INDEX events_by_kind ON events (job, kind, sequence);

-- `spent` has what jobs took that are over, whether they were removed since or not.
INSERT INTO spent (project, owner, gpu_seconds, wall_seconds)
SELECT project, coalesce(owner, ''), sum(gpu_seconds), sum(wall_seconds)
FROM jobs JOIN attempts ON attempts.job = jobs.id
WHERE jobs.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT')
GROUP BY project, coalesce(owner, '')
ON CONFLICT (project, owner) DO UPDATE SET gpu_seconds = gpu_seconds + excluded.gpu_seconds,
    wall_seconds = wall_seconds + excluded.wall_seconds;
