-- The order in which queued jobs start, and the running jobs with several hosts: what each placement reads.
CREATE INDEX jobs_by_scheduling_order ON jobs (priority DESC, preemptible, cursor) WHERE state = 'QUEUED' AND NOT paused;
CREATE INDEX jobs_of_several_hosts ON jobs (id) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND hosts > 1;
