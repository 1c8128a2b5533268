-- The newest lines of the logs of attempts, if the finished logs are objects of a bucket.
CREATE TABLE log_chunks (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    first_byte INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (job, attempt, first_byte)
) STRICT, WITHOUT ROWID;
