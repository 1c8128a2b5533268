ALTER TABLE jobs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default';
ALTER TABLE jobs ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN device TEXT NOT NULL DEFAULT 'auto';
ALTER TABLE jobs ADD COLUMN slots_milli INTEGER NOT NULL DEFAULT 1000;
ALTER TABLE jobs ADD COLUMN experiment TEXT;
ALTER TABLE jobs ADD COLUMN owner TEXT;
ALTER TABLE attempts ADD COLUMN pool TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN data_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN all_reduce_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN checkpoint_seconds REAL NOT NULL DEFAULT 0;

-- What jobs took, for when their attempts are not asked.
CREATE TABLE spent (
    project TEXT NOT NULL,
    owner TEXT NOT NULL,
    gpu_seconds REAL NOT NULL,
    wall_seconds REAL NOT NULL,
    PRIMARY KEY (project, owner)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    cron TEXT NOT NULL,
    spec TEXT NOT NULL,
    owner TEXT,
    created_ms INTEGER NOT NULL,
    settled_ms INTEGER NOT NULL,
    last_job TEXT
) STRICT, WITHOUT ROWID;
