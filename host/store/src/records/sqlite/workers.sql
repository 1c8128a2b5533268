-- The servers and workers that run jobs: what each one offers, as JSON; whether it is to be drained; when it started, and its last
-- renewal by this machine's clock. Labels that a job requires of its host, as JSON.
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    offer TEXT NOT NULL,
    drain TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL
);
ALTER TABLE jobs ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
