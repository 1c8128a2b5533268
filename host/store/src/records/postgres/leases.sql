-- Who runs an active job: the server's name and identifier, the token of the claim, and until when by this database's clock. What
-- was ordered of the attempt, as JSON. The storage that the job's files are in; empty if every server has them.
ALTER TABLE jobs ADD COLUMN server TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN server_id TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN claim TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN lease_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN orders TEXT COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE jobs ADD COLUMN storage TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX jobs_by_lease ON jobs (lease_until) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');

-- The clock of leases, and when the database's server started by it: milliseconds since 1970-01-01 UTC. The clock continues
-- during a transaction.
CREATE FUNCTION lease_clock_ms() RETURNS BIGINT LANGUAGE SQL VOLATILE
    AS 'SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)';
CREATE FUNCTION lease_clock_start_ms() RETURNS BIGINT LANGUAGE SQL STABLE
    AS 'SELECT CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000 AS BIGINT)';
