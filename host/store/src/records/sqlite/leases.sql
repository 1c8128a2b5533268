-- Who runs an active job: the server's name and identifier, the token of the claim, and until when by this machine's clock. What
-- was ordered of the attempt, as JSON. The storage that the job's files are in; empty if every server has them.
ALTER TABLE jobs ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN server_id TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN orders TEXT NOT NULL DEFAULT '{}';
ALTER TABLE jobs ADD COLUMN storage TEXT NOT NULL DEFAULT '';
