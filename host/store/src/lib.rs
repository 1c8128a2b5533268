//! Durable state: objects, checkpoints, model versions, datasets and job records
