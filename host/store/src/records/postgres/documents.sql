-- Small texts that are replaced as a whole, such as the keys of clients. A replacement names the revision that it replaces.
CREATE TABLE documents (
    name TEXT COLLATE "C" PRIMARY KEY,
    revision BIGINT NOT NULL,
    content TEXT COLLATE "C" NOT NULL
);
