ALTER TABLE attempts ADD COLUMN seconds_estimated INTEGER NOT NULL DEFAULT 0;
UPDATE attempts SET seconds_estimated = 1 WHERE device = 'cpu';
