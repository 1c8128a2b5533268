//! The engines that start workers for pools of the project file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use saggar_jobs::JobService;
use saggar_kubernetes::{ClusterAccess, KubernetesEngine, KubernetesJobSettings};
use saggar_project::KubernetesPoolSection;

use crate::args::ServeArgs;
use crate::exit::CliError;

/// The variables about the bucket that workers get as they are. Credentials come from a secret.
const OBJECTS_VARIABLES: [&str; 4] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"];

/// Adds an engine for each pool of Kubernetes.
///
/// # Errors
/// Fails if workers could not reach the records or the objects, or if the access to the API server is not set.
pub(super) fn with_engines(
    mut jobs: JobService,
    pools: &BTreeMap<String, KubernetesPoolSection>,
    args: &ServeArgs,
) -> Result<JobService, CliError> {
    let directory = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    for (name, pool) in pools {
        let refuse = |reason: String| CliError::invalid(format!("pool.{name}.kubernetes: {reason}"));
        let is_shared = args.database.database.as_ref().is_some_and(|url| !url.is_empty());
        let Some(objects) = args.objects.as_ref().filter(|_| is_shared) else {
            let reason = "workers in a cluster need the records and the objects of this server";
            let hint = "start the server with --database and --objects";
            return Err(refuse(reason.to_owned()).with_hint(hint));
        };
        let mut variables = BTreeMap::from([("SAGGAR_OBJECTS".to_owned(), objects.clone())]);
        variables.extend(OBJECTS_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))));
        let access = ClusterAccess::of_pool(pool, directory, &variable).map_err(|error| refuse(error.to_string()))?;
        let settings = KubernetesJobSettings { pool: pool.clone(), variables };
        let engine = KubernetesEngine::new(access, settings).map_err(|error| refuse(error.to_string()))?;
        jobs = jobs.with_engine(name, Arc::new(engine));
    }
    Ok(jobs)
}
