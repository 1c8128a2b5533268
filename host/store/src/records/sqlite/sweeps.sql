-- Hyper-parameter searches. `decisions` counts the decisions about a sweep: a decision that follows from an earlier state
-- of the records is refused. A sweep is settled once it is over and its jobs are stopped.
CREATE TABLE sweeps (
    cursor INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    number INTEGER NOT NULL,
    spec TEXT NOT NULL,
    owner TEXT,
    rights TEXT,
    idempotency_key TEXT UNIQUE,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL DEFAULT '',
    reason_sentence TEXT NOT NULL DEFAULT '',
    decisions INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    finished_ms INTEGER,
    settled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The trials of a sweep, each a job. `rung_values` are numbers separated by spaces; a value that is not finite is `-`.
CREATE TABLE trials (
    sweep TEXT NOT NULL REFERENCES sweeps (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    job TEXT,
    state TEXT NOT NULL,
    rung INTEGER NOT NULL,
    rung_values TEXT NOT NULL,
    reason_code TEXT NOT NULL,
    reason_sentence TEXT NOT NULL,
    PRIMARY KEY (sweep, number)
) STRICT, WITHOUT ROWID;
