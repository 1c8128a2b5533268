//! Training jobs: queue, supervisor, worker processes, retries and resume
