//! The HTTP server: predictions, jobs, datasets, models, health and metrics
