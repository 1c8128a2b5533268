-- Of a trial that continues from the state of another one: the member of the population in whose place it trains, the
-- number of the other trial, and the rung at which it was copied. All three are null for other trials.
ALTER TABLE trials ADD COLUMN member INTEGER;
ALTER TABLE trials ADD COLUMN parent INTEGER;
ALTER TABLE trials ADD COLUMN parent_rung INTEGER;
