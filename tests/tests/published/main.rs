//! What others build on: documents, packages, schemas and the interfaces that stay compatible.

mod api_compatibility;
mod cli_conventions;
mod dataset_schema;
mod deployments;
mod deprecations;
mod documentation;
mod examples;
mod installation;
mod interface_revisions;
mod json_output;
mod makefile_targets;
mod older_plugins;
mod openapi;
mod packages;
mod version_compatibility;
