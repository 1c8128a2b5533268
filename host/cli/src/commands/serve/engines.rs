//! The engines that start workers for pools of the project file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use saggar_jobs::JobService;
use saggar_jobs::engine::WORKER_SETTINGS_VARIABLE;
use saggar_jobs::launcher::DATABASE_URL_VARIABLE;
use saggar_jobs::slurm_engine::{SlurmEngine, SlurmJobSettings};
use saggar_kubernetes::{ClusterAccess, KubernetesEngine, KubernetesJobSettings};
use saggar_project::{PoolSection, SlurmPoolSection};
use saggar_rest::workers::WorkerSettingsDocument;
use saggar_serve::worker_job_settings;

use crate::args::ServeArgs;
use crate::exit::CliError;

/// The variables about the bucket that workers get as they are. Credentials come from a secret.
const OBJECTS_VARIABLES: [&str; 4] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"];

/// Adds an engine for each pool that has one. `joined` has the settings that joined workers get.
///
/// # Errors
/// Fails if workers could not reach the records or the objects, or if the access to the API server is not set.
pub(super) fn with_engines(
    mut jobs: JobService,
    pools: &BTreeMap<String, PoolSection>,
    args: &ServeArgs,
    joined: Option<&WorkerSettingsDocument>,
) -> Result<JobService, CliError> {
    let directory = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    for (name, pool) in pools {
        if let Some(slurm) = &pool.slurm {
            jobs = with_slurm(jobs, name, pool, slurm, joined)?;
            continue;
        }
        let Some(kubernetes) = &pool.kubernetes else { continue };
        let refuse = |reason: String| CliError::invalid(format!("pool.{name}.kubernetes: {reason}"));
        let (Some(joined), Some(objects)) = (joined, &args.objects) else {
            let reason = "workers in a cluster need the records and the objects of this server";
            let hint = "start the server with --database and --objects";
            return Err(refuse(reason.to_owned()).with_hint(hint));
        };
        let settings = worker_settings(&jobs, name, joined);
        let mut variables = BTreeMap::from([("SAGGAR_OBJECTS".to_owned(), objects.clone()), settings]);
        variables.extend(OBJECTS_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))));
        let access =
            ClusterAccess::of_pool(kubernetes, directory, &variable).map_err(|error| refuse(error.to_string()))?;
        let settings = KubernetesJobSettings { pool: kubernetes.clone(), labels: pool.labels.clone(), variables };
        let engine = KubernetesEngine::new(access, settings).map_err(|error| refuse(error.to_string()))?;
        jobs = jobs.with_engine(name, Arc::new(engine));
    }
    Ok(jobs)
}

/// Adds the engine of a pool whose jobs run in Slurm.
///
/// # Errors
/// Fails if workers could not reach the records.
fn with_slurm(
    jobs: JobService,
    name: &str,
    pool: &PoolSection,
    slurm: &SlurmPoolSection,
    joined: Option<&WorkerSettingsDocument>,
) -> Result<JobService, CliError> {
    let refuse = |reason: &str| CliError::invalid(format!("pool.{name}.slurm: {reason}"));
    let Some(joined) = joined else {
        let hint = "start the server with --database";
        return Err(refuse("workers in Slurm need the records of this server").with_hint(hint));
    };
    let mut variables = joined.environment.clone();
    variables
        .extend([(DATABASE_URL_VARIABLE.to_owned(), joined.database.clone()), worker_settings(&jobs, name, joined)]);
    variables.extend(joined.objects.iter().map(|objects| ("SAGGAR_OBJECTS".to_owned(), objects.clone())));
    let program = match &slurm.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| refuse(&error.to_string()))?.display().to_string(),
    };
    let options = [
        ("--partition", &slurm.partition),
        ("--account", &slurm.account),
        ("--qos", &slurm.qos),
        ("--gres", &slurm.gres),
        ("--constraint", &slurm.constraint),
        ("--time", &slurm.time),
        ("--cpus-per-task", &slurm.cpus),
        ("--mem", &slurm.memory),
    ];
    let options = options.into_iter().filter_map(|(option, value)| Some((option.to_owned(), value.clone()?)));
    let home = slurm.home.clone();
    let labels = pool.labels.clone();
    let settings = SlurmJobSettings { options: options.collect(), program, labels, home, variables };
    Ok(jobs.with_engine(name, Arc::new(SlurmEngine::new(settings))))
}

/// Returns the variable with the settings of the workers of a pool, which have this pool and the queues that use it.
fn worker_settings(jobs: &JobService, pool: &str, joined: &WorkerSettingsDocument) -> (String, String) {
    let settings = worker_job_settings(&jobs.scheduler_config(), joined.jobs.clone(), |name| name == pool);
    let settings = serde_json::to_string(&settings).expect("settings have text as keys");
    (WORKER_SETTINGS_VARIABLE.to_owned(), settings)
}
