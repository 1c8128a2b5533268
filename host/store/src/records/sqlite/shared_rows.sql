-- What the servers of a database have in common. Predictions that clients can query: what clients see of each, or the object that it
-- is in; the process that computes it, and its last renewal by the clock of leases.
CREATE TABLE predictions (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    process TEXT NOT NULL,
    server TEXT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT NOT NULL,
    object TEXT NOT NULL,
    is_over INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
);
CREATE INDEX predictions_running ON predictions (process) WHERE NOT is_over;
CREATE INDEX predictions_over ON predictions (seen_ms) WHERE is_over;
-- Lines of the audit log.
CREATE TABLE audit_lines (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    server TEXT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    result TEXT NOT NULL,
    project TEXT NOT NULL
);
-- Requests of each key since the start of a day or month.
CREATE TABLE key_usage (
    key_id TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    PRIMARY KEY (key_id, since_ms)
);
-- Model versions that a job was allowed to publish, until each is visible.
CREATE TABLE publications (
    id TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    version INTEGER NOT NULL,
    job TEXT NOT NULL,
    epoch INTEGER NOT NULL
);
-- The name of the server or worker that claimed an attempt; empty without other servers.
ALTER TABLE attempts ADD COLUMN server TEXT NOT NULL DEFAULT '';
