//! Pipelines, their steps, and sweeps.

mod comparisons;
mod data_steps;
mod pipeline_folders;
mod pipeline_options;
mod pipeline_steps;
mod pipelines;
mod prediction_jobs;
mod steps;
mod sweep_publications;
mod sweeps;
