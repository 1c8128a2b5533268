//! Jobs of one server: submission, queue, checkpoints, logs, projects, notebooks.

mod annotations;
mod charts;
mod health_policy;
mod job_checkpoints;
mod job_commands;
mod job_lifecycle;
mod job_monitoring;
mod job_pause;
mod job_phases;
mod logged_items;
mod metering;
mod mlflow;
mod notebook_installation;
mod notebooks;
mod project;
mod project_scopes;
mod queue;
mod recording;
mod replay;
mod replicas;
mod run_command;
mod tensorboard;
mod worker_transport;
