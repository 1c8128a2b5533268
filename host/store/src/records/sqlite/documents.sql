-- Small texts that are replaced as a whole, such as the keys of clients. A replacement names the revision that it replaces.
CREATE TABLE documents (
    name TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
