-- Jobs whose ranks are on several hosts: how many; the hosts of each attempt, in the order of their ranks, with the epoch under
-- which they were chosen; and where the ranks meet, as JSON, while the attempt runs.
ALTER TABLE jobs ADD COLUMN hosts BIGINT NOT NULL DEFAULT 1;
ALTER TABLE attempts ADD COLUMN meeting_point TEXT COLLATE "C";
CREATE TABLE attempt_hosts (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    part BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    pool TEXT COLLATE "C" NOT NULL,
    device TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job, attempt, part)
);
