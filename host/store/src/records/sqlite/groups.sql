-- Jobs with the same scheduling parameters, project, key and storage, of which a placement reads only the first ones. The jobs of
-- before are a group each.
ALTER TABLE jobs ADD COLUMN scheduling_group TEXT NOT NULL DEFAULT '';
UPDATE jobs SET scheduling_group = id WHERE state IN ('QUEUED', 'STARTING', 'RUNNING', 'STOPPING');
CREATE INDEX jobs_by_group ON jobs (scheduling_group, cursor) WHERE state = 'QUEUED' AND NOT paused;
CREATE INDEX jobs_by_age ON jobs (cursor) WHERE state = 'QUEUED';
CREATE INDEX jobs_by_server ON jobs (server_id) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');
