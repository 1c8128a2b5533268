CREATE TABLE experiments (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    experiment TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    is_deleted INTEGER NOT NULL DEFAULT 0,
    points INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_of_experiments ON runs (experiment, number);
CREATE TABLE texts (
    run INTEGER NOT NULL REFERENCES runs (number),
    is_tag INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, is_tag, key)
) WITHOUT ROWID;
-- The value is the bits of a 64-bit float, because SQLite has no NaN.
CREATE TABLE points (
    run INTEGER NOT NULL REFERENCES runs (number),
    key TEXT NOT NULL,
    step INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    bits INTEGER NOT NULL,
    PRIMARY KEY (run, key, step, at_ms, bits)
) WITHOUT ROWID;
