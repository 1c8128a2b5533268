-- The newest lines of the logs of attempts, if the finished logs are objects of a bucket.
CREATE TABLE log_chunks (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    first_byte BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    content TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job, attempt, first_byte)
);
