-- Where a job is to pause, as JSON, and whether it is paused there. A paused job is QUEUED and is not claimed.
ALTER TABLE jobs ADD COLUMN pause TEXT;
ALTER TABLE jobs ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
