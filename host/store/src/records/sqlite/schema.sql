CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    cursor INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    number INTEGER NOT NULL,
    task TEXT NOT NULL,
    spec TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL DEFAULT '',
    reason_sentence TEXT NOT NULL DEFAULT '',
    stop_code TEXT,
    stop_sentence TEXT,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    finished_ms INTEGER,
    not_before_ms INTEGER NOT NULL DEFAULT 0,
    step INTEGER NOT NULL DEFAULT 0,
    steps_target INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    idempotency_key TEXT UNIQUE,
    UNIQUE (project, number)
) STRICT;
CREATE INDEX jobs_by_turn ON jobs (state, priority DESC, cursor);

CREATE TABLE attempts (
    job TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL DEFAULT '',
    reason_sentence TEXT NOT NULL DEFAULT '',
    device TEXT NOT NULL DEFAULT '',
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    first_step INTEGER NOT NULL DEFAULT 0,
    last_step INTEGER NOT NULL DEFAULT 0,
    wall_seconds REAL NOT NULL DEFAULT 0,
    gpu_seconds REAL NOT NULL DEFAULT 0,
    peak_bytes INTEGER NOT NULL DEFAULT 0,
    samples INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

-- A value that is not a number is NULL, for SQLite stores it so.
CREATE TABLE metrics (
    job TEXT NOT NULL REFERENCES jobs (id),
    name TEXT NOT NULL,
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    value REAL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (job, name, step, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL REFERENCES jobs (id),
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events (job, sequence);
