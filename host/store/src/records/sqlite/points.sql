-- A job has so many points: how many each series has, how many were reported, and which of them are recorded.
ALTER TABLE latest ADD COLUMN points INTEGER NOT NULL DEFAULT 0;
ALTER TABLE latest ADD COLUMN reported INTEGER NOT NULL DEFAULT 0;
ALTER TABLE latest ADD COLUMN stride INTEGER NOT NULL DEFAULT 1;

UPDATE latest SET points = (SELECT count(*) FROM metrics WHERE metrics.job = latest.job AND metrics.name = latest.name);
UPDATE latest SET reported = points;

-- Of a job that is not to start yet, how long that was to be. A clock that is set back makes no job wait longer.
ALTER TABLE jobs ADD COLUMN backoff_ms INTEGER NOT NULL DEFAULT 0;
