//! The commands, one concept per file.

pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod dev;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod inspect;
mod job_follow;
mod job_log;
pub(crate) mod jobs;
pub(crate) mod key;
pub(crate) mod listeners;
pub(crate) mod models;
pub(crate) mod outputs;
pub(crate) mod plugins;
pub(crate) mod predict;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod serving_status;
mod stored_version;
pub(crate) mod version;
