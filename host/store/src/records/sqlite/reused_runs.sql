-- The name of the run whose results a pipeline run takes.
ALTER TABLE pipeline_runs ADD COLUMN reuse_from TEXT;
