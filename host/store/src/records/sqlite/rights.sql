-- What the key may do that the job was submitted with, or the schedule set: JSON, NULL without a key and in records of before.
ALTER TABLE jobs ADD COLUMN rights TEXT;
ALTER TABLE schedules ADD COLUMN rights TEXT;
