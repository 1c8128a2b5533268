-- What the servers of a database have in common. Predictions that clients can query: what clients see of each, or the object that it
-- is in; the process that computes it, and its last renewal by the clock of leases.
CREATE TABLE predictions (
    owner TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    process TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    content TEXT COLLATE "C" NOT NULL,
    object TEXT COLLATE "C" NOT NULL,
    is_over BOOLEAN NOT NULL,
    seen_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, id)
);
CREATE INDEX predictions_running ON predictions (process) WHERE NOT is_over;
CREATE INDEX predictions_over ON predictions (seen_ms) WHERE is_over;
-- Lines of the audit log.
CREATE TABLE audit_lines (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    server TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    detail TEXT COLLATE "C" NOT NULL,
    result TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL
);
-- Requests of each key since the start of a day or month.
CREATE TABLE key_usage (
    key_id TEXT COLLATE "C" NOT NULL,
    since_ms BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    PRIMARY KEY (key_id, since_ms)
);
-- Model versions that a job was allowed to publish, until each is visible.
CREATE TABLE publications (
    id TEXT COLLATE "C" PRIMARY KEY,
    model TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL
);
-- The name of the server or worker that claimed an attempt; empty without other servers.
ALTER TABLE attempts ADD COLUMN server TEXT COLLATE "C" NOT NULL DEFAULT '';
