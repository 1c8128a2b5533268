-- The servers and workers that run jobs: what each one offers, as JSON; whether it is to be drained; when it started, and its last
-- renewal by the clock of leases. Labels that a job requires of its host, as JSON.
CREATE TABLE workers (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    offer TEXT COLLATE "C" NOT NULL,
    drain TEXT COLLATE "C" NOT NULL,
    started_ms BIGINT NOT NULL,
    seen_ms BIGINT NOT NULL
);
ALTER TABLE jobs ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '{}';
