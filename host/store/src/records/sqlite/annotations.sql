-- What users write about jobs: tags, a JSON object of texts, and a note.
CREATE TABLE annotations (
    job TEXT PRIMARY KEY REFERENCES jobs (id),
    tags TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_experiment ON jobs (experiment) WHERE experiment IS NOT NULL;
