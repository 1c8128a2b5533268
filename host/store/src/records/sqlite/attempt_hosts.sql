-- Jobs whose ranks are on several hosts: how many; the hosts of each attempt, in the order of their ranks, with the epoch under
-- which they were chosen; and where the ranks meet, as JSON, while the attempt runs.
ALTER TABLE jobs ADD COLUMN hosts INTEGER NOT NULL DEFAULT 1;
ALTER TABLE attempts ADD COLUMN meeting_point TEXT;
CREATE TABLE attempt_hosts (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    part INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    host_id TEXT NOT NULL,
    host TEXT NOT NULL,
    pool TEXT NOT NULL,
    device TEXT NOT NULL,
    PRIMARY KEY (job, attempt, part)
);
