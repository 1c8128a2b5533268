-- The records of a server on PostgreSQL. Texts are compared by bytes, as in SQLite. Further migrations are files of their own.
CREATE FUNCTION instr(whole TEXT, part TEXT) RETURNS INTEGER LANGUAGE SQL IMMUTABLE PARALLEL SAFE
    AS 'SELECT strpos(whole, part)';

-- The newest write of each connection, changed in the transaction of the write. After an answer to COMMIT was lost, it says
-- whether the write was committed.
CREATE TABLE write_markers (
    connection TEXT COLLATE "C" PRIMARY KEY,
    newest BIGINT NOT NULL,
    written_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE projects (
    name TEXT COLLATE "C" PRIMARY KEY,
    last_number BIGINT NOT NULL
);

CREATE TABLE jobs (
    cursor BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    project TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    task TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason_sentence TEXT COLLATE "C" NOT NULL DEFAULT '',
    stop_code TEXT COLLATE "C",
    stop_sentence TEXT COLLATE "C",
    created_ms BIGINT NOT NULL,
    started_ms BIGINT,
    finished_ms BIGINT,
    not_before_ms BIGINT NOT NULL DEFAULT 0,
    -- How long a job that waits until not_before_ms was to wait. A clock that is set back makes no job wait longer.
    backoff_ms BIGINT NOT NULL DEFAULT 0,
    step BIGINT NOT NULL DEFAULT 0,
    steps_target BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    idempotency_key TEXT COLLATE "C" UNIQUE,
    queue TEXT COLLATE "C" NOT NULL DEFAULT 'default',
    preemptible BOOLEAN NOT NULL DEFAULT FALSE,
    device TEXT COLLATE "C" NOT NULL DEFAULT 'auto',
    slots_milli BIGINT NOT NULL DEFAULT 1000,
    experiment TEXT COLLATE "C",
    owner TEXT COLLATE "C",
    -- What the key may do that the job was submitted with, as JSON.
    rights TEXT COLLATE "C",
    -- Where the job is to pause, as JSON, and whether it is paused there. A paused job is QUEUED and is not claimed.
    pause TEXT COLLATE "C",
    paused BOOLEAN NOT NULL DEFAULT FALSE,
    UNIQUE (project, number)
);
CREATE INDEX jobs_by_turn ON jobs (state, priority DESC, cursor);
CREATE INDEX jobs_by_experiment ON jobs (experiment) WHERE experiment IS NOT NULL;

CREATE TABLE attempts (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
    number BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason_sentence TEXT COLLATE "C" NOT NULL DEFAULT '',
    device TEXT COLLATE "C" NOT NULL DEFAULT '',
    pool TEXT COLLATE "C" NOT NULL DEFAULT '',
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    first_step BIGINT NOT NULL DEFAULT 0,
    last_step BIGINT NOT NULL DEFAULT 0,
    wall_seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    gpu_seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    seconds_estimated BOOLEAN NOT NULL DEFAULT FALSE,
    peak_bytes BIGINT NOT NULL DEFAULT 0,
    samples BIGINT NOT NULL DEFAULT 0,
    data_seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    all_reduce_seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    checkpoint_seconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number)
);

-- A value that is not a number is NULL.
CREATE TABLE metrics (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
    name TEXT COLLATE "C" NOT NULL,
    step BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    value DOUBLE PRECISION,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (job, name, step, attempt)
);

-- The last point of each series by its newest attempt, and how many points the series has, how many were reported, and which
-- of them are recorded.
CREATE TABLE latest (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
    name TEXT COLLATE "C" NOT NULL,
    attempt BIGINT NOT NULL,
    step BIGINT NOT NULL,
    value DOUBLE PRECISION,
    at_ms BIGINT NOT NULL,
    points BIGINT NOT NULL DEFAULT 0,
    reported BIGINT NOT NULL DEFAULT 0,
    stride BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (job, name)
);

CREATE TABLE events (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
    at_ms BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    text TEXT COLLATE "C" NOT NULL
);
CREATE INDEX events_by_job ON events (job, sequence);
CREATE INDEX events_by_kind ON events (job, kind, sequence);

CREATE TABLE annotations (
    job TEXT COLLATE "C" PRIMARY KEY REFERENCES jobs (id),
    tags TEXT COLLATE "C" NOT NULL,
    note TEXT COLLATE "C" NOT NULL
);

-- The usage of jobs that are over, whether they were removed since or not.
CREATE TABLE spent (
    project TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    gpu_seconds DOUBLE PRECISION NOT NULL,
    wall_seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (project, owner)
);

CREATE TABLE schedules (
    name TEXT COLLATE "C" PRIMARY KEY,
    cron TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C",
    rights TEXT COLLATE "C",
    created_ms BIGINT NOT NULL,
    settled_ms BIGINT NOT NULL,
    last_job TEXT COLLATE "C"
);

CREATE TABLE pipelines (
    name TEXT COLLATE "C" PRIMARY KEY,
    last_number BIGINT NOT NULL
);

CREATE TABLE pipeline_runs (
    cursor BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    pipeline TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    plan TEXT COLLATE "C" NOT NULL,
    params TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason_sentence TEXT COLLATE "C" NOT NULL DEFAULT '',
    stop_code TEXT COLLATE "C",
    stop_sentence TEXT COLLATE "C",
    owner TEXT COLLATE "C",
    rights TEXT COLLATE "C",
    created_ms BIGINT NOT NULL,
    finished_ms BIGINT,
    idempotency_key TEXT COLLATE "C" UNIQUE,
    -- The name of the run whose results this one takes.
    reuse_from TEXT COLLATE "C"
);
CREATE INDEX pipeline_runs_by_state ON pipeline_runs (state, cursor);

-- One row for each attempt of each item of a step. The highest attempt is the current one.
CREATE TABLE pipeline_steps (
    run TEXT COLLATE "C" NOT NULL REFERENCES pipeline_runs (id),
    position BIGINT NOT NULL,
    item BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason_sentence TEXT COLLATE "C" NOT NULL DEFAULT '',
    job TEXT COLLATE "C",
    cached_from TEXT COLLATE "C",
    cache_key TEXT COLLATE "C",
    inputs TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    outputs TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    started_ms BIGINT,
    finished_ms BIGINT,
    PRIMARY KEY (run, position, item, attempt)
);
CREATE INDEX pipeline_steps_by_cache_key ON pipeline_steps (cache_key, state) WHERE cache_key IS NOT NULL;
CREATE INDEX pipeline_steps_by_job ON pipeline_steps (job) WHERE job IS NOT NULL;

CREATE TABLE pipeline_schedules (
    name TEXT COLLATE "C" PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL,
    cron TEXT COLLATE "C" NOT NULL,
    request TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C",
    rights TEXT COLLATE "C",
    created_ms BIGINT NOT NULL,
    settled_ms BIGINT NOT NULL,
    last_run TEXT COLLATE "C"
);

-- Hyper-parameter searches. `decisions` counts the decisions about a sweep: a decision that follows from an earlier state
-- of the records is refused. A sweep is settled once it is over and its jobs are stopped.
CREATE TABLE sweeps (
    cursor BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    project TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C",
    rights TEXT COLLATE "C",
    idempotency_key TEXT COLLATE "C" UNIQUE,
    state TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason_sentence TEXT COLLATE "C" NOT NULL DEFAULT '',
    decisions BIGINT NOT NULL DEFAULT 0,
    created_ms BIGINT NOT NULL,
    finished_ms BIGINT,
    settled BOOLEAN NOT NULL DEFAULT FALSE
);

-- The trials of a sweep, each a job. `rung_values` are numbers separated by spaces; a value that is not finite is `-`.
-- `member`, `parent` and `parent_rung` are of trials that continue from the state of another one.
CREATE TABLE trials (
    sweep TEXT COLLATE "C" NOT NULL REFERENCES sweeps (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    parameters TEXT COLLATE "C" NOT NULL,
    job TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL,
    rung BIGINT NOT NULL,
    rung_values TEXT COLLATE "C" NOT NULL,
    reason_code TEXT COLLATE "C" NOT NULL,
    reason_sentence TEXT COLLATE "C" NOT NULL,
    member BIGINT,
    parent BIGINT,
    parent_rung BIGINT,
    PRIMARY KEY (sweep, number)
);
