CREATE TABLE pipelines (
    name TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pipeline_runs (
    cursor INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    pipeline TEXT NOT NULL,
    project TEXT NOT NULL,
    plan TEXT NOT NULL,
    params TEXT NOT NULL,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL DEFAULT '',
    reason_sentence TEXT NOT NULL DEFAULT '',
    stop_code TEXT,
    stop_sentence TEXT,
    owner TEXT,
    rights TEXT,
    created_ms INTEGER NOT NULL,
    finished_ms INTEGER,
    idempotency_key TEXT UNIQUE
) STRICT;
CREATE INDEX pipeline_runs_by_state ON pipeline_runs (state, cursor);

-- One row for each attempt of each item of a step. The highest attempt is the current one.
CREATE TABLE pipeline_steps (
    run TEXT NOT NULL REFERENCES pipeline_runs (id),
    position INTEGER NOT NULL,
    item INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step TEXT NOT NULL,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL DEFAULT '',
    reason_sentence TEXT NOT NULL DEFAULT '',
    job TEXT,
    cached_from TEXT,
    cache_key TEXT,
    inputs TEXT NOT NULL DEFAULT '[]',
    outputs TEXT NOT NULL DEFAULT '{}',
    started_ms INTEGER,
    finished_ms INTEGER,
    PRIMARY KEY (run, position, item, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX pipeline_steps_by_cache_key ON pipeline_steps (cache_key, state) WHERE cache_key IS NOT NULL;
CREATE INDEX pipeline_steps_by_job ON pipeline_steps (job) WHERE job IS NOT NULL;

CREATE TABLE pipeline_schedules (
    name TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    cron TEXT NOT NULL,
    request TEXT NOT NULL,
    owner TEXT,
    rights TEXT,
    created_ms INTEGER NOT NULL,
    settled_ms INTEGER NOT NULL,
    last_run TEXT
) STRICT, WITHOUT ROWID;
