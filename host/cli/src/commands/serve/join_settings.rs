//! The settings that a server gives to hosts that join its workers.

use std::collections::BTreeMap;

use saggar_jobs::launcher::SECRETS_KEY_VARIABLE;
use saggar_jobs::limits::WORKER_SILENCE_MAX;
use saggar_rest::workers::{WorkerJobSettings, WorkerSettingsDocument};

use crate::args::ServeArgs;
use crate::exit::CliError;

/// The variables with the settings and credentials of a bucket that are the same on every machine. Those that name files are
/// not.
const OBJECT_STORE_VARIABLES: [&str; 7] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
];

/// Returns the settings, without pools, queues and limits, or `None` if the records are in the state directory.
///
/// # Errors
/// Fails if the URL of the database is not one of PostgreSQL.
pub(super) fn join_settings(
    args: &ServeArgs,
    storage_quota: Option<u64>,
) -> Result<Option<WorkerSettingsDocument>, CliError> {
    let Some(database) = args.database.database.as_ref().filter(|url| !url.is_empty()) else { return Ok(None) };
    let mut environment = BTreeMap::new();
    if args.objects.is_some() {
        let set = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok().filter(|value| !value.is_empty())?));
        environment.extend(OBJECT_STORE_VARIABLES.iter().filter_map(set));
    }
    // The secrets of jobs are sealed with it.
    let secrets_key = std::env::var(SECRETS_KEY_VARIABLE).ok().filter(|key| !key.is_empty());
    environment.extend(secrets_key.map(|key| (SECRETS_KEY_VARIABLE.to_owned(), key)));
    let jobs = WorkerJobSettings {
        storage_quota,
        fetch_from: args.fetch.fetch_from.iter().map(ToString::to_string).collect(),
        fetch_private: args.fetch.fetch_private,
        worker_silence_seconds: args.worker_silence.unwrap_or(WORKER_SILENCE_MAX).as_secs_f64(),
        ..WorkerJobSettings::default()
    };
    let database = database.as_postgres().map_err(CliError::invalid)?.to_owned();
    Ok(Some(WorkerSettingsDocument { database, objects: args.objects.clone(), environment, jobs }))
}
