//! Several servers and workers: shared databases and buckets, Slurm, Kubernetes, cut networks.

mod bucket_datasets;
mod cluster;
mod database_faults;
mod encrypted_stores;
mod fenced_publications;
mod kubernetes_jobs;
mod migrate;
mod object_store;
mod object_store_faults;
mod object_store_server;
mod ranks_on_hosts;
mod rolling_restart;
mod several_drivers;
mod shared_audit_and_quotas;
mod shared_backups;
mod shared_bucket;
mod shared_database;
mod shared_keys;
mod shared_predictions;
mod shared_quota;
mod shared_uploads;
mod slurm_jobs;
mod workers;
