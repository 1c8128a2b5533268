//! What each route asks of a key. A route that is not in the table wants `admin`; a test walks all routes so that there is
//! none.

use std::collections::HashMap;

use axum::http::Method;
use saggar_store::keys::Scope;

/// What a route asks for at a guarded door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: probes, and files that show no state.
    Nothing,
    /// Nothing for a browser's page, which is the same for everybody; any key for what programs read.
    Page,
    /// Any key.
    Key,
    /// Nothing on this machine, `metrics:read` elsewhere.
    Metrics,
    /// A key with this scope.
    Scope(Scope),
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;
const OPTIONS: Method = Method::OPTIONS;

/// Asks a model.
const PREDICT: Need = Need::Scope(Scope::Predict);
/// Sees jobs and what they are made of.
const SEE_JOBS: Need = Need::Scope(Scope::JobsRead);
/// Changes jobs and what they are made of.
const DO_JOBS: Need = Need::Scope(Scope::JobsWrite);
/// Changes models.
const DO_MODELS: Need = Need::Scope(Scope::ModelsWrite);
/// Changes who may do what.
const ADMIN: Need = Need::Scope(Scope::Admin);

/// Every route and method, as `App::routes` has them. Methods that read stand for `HEAD` too.
const TABLE: &[(Method, &str, Need)] = &[
    (GET, "/", Need::Page),
    (POST, "/", PREDICT),
    (GET, "/console/{fingerprint}/{*name}", Need::Nothing),
    (GET, "/predict", PREDICT),
    (POST, "/predict", PREDICT),
    (GET, "/models/{model}/predict", PREDICT),
    (POST, "/models/{model}/predict", PREDICT),
    (GET, "/models/{model}/{*path}", PREDICT),
    (POST, "/models/{model}/{*path}", PREDICT),
    (POST, "/predictions", PREDICT),
    (GET, "/predictions/{id}", PREDICT),
    (PUT, "/predictions/{id}", PREDICT),
    (POST, "/predictions/{id}/cancel", PREDICT),
    (GET, "/v1/", Need::Key),
    (GET, "/v1/{*path}", Need::Key),
    (POST, "/v1/{*path}", PREDICT),
    (OPTIONS, "/v1/{*path}", Need::Nothing),
    (GET, "/V1/{*path}", Need::Key),
    (POST, "/V1/{*path}", PREDICT),
    (OPTIONS, "/V1/{*path}", Need::Nothing),
    (GET, "/v2", Need::Key),
    (GET, "/v2/", Need::Key),
    (GET, "/v2/health/live", Need::Nothing),
    (GET, "/v2/health/ready", Need::Nothing),
    (GET, "/v2/models/stats", Need::Key),
    (GET, "/v2/models/{model}", Need::Key),
    (GET, "/v2/models/{model}/ready", Need::Key),
    (GET, "/v2/models/{model}/config", Need::Key),
    (GET, "/v2/models/{model}/stats", Need::Key),
    (POST, "/v2/models/{model}/infer", PREDICT),
    (GET, "/v2/models/{model}/versions/{version}", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/ready", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/config", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/stats", Need::Key),
    (POST, "/v2/models/{model}/versions/{version}/infer", PREDICT),
    (POST, "/v2/repository/index", Need::Key),
    (POST, "/v2/repository/models/{model}/load", DO_MODELS),
    (POST, "/v2/repository/models/{model}/unload", DO_MODELS),
    (GET, "/healthz", Need::Nothing),
    (GET, "/livez", Need::Nothing),
    (GET, "/readyz", Need::Nothing),
    (GET, "/version", Need::Nothing),
    (GET, "/metrics", Need::Metrics),
    (GET, "/openapi.json", Need::Key),
    (GET, "/api/v1/models", Need::Key),
    (GET, "/api/v1/models/{model}", Need::Key),
    (POST, "/api/v1/models/{model}/import", DO_MODELS),
    (POST, "/api/v1/models/{model}/versions", DO_MODELS),
    (POST, "/api/v1/models/{model}/load", DO_MODELS),
    (POST, "/api/v1/models/{model}/unload", DO_MODELS),
    (POST, "/api/v1/models/{model}/warm", DO_MODELS),
    (POST, "/api/v1/models/{model}/promote", DO_MODELS),
    (POST, "/api/v1/models/{model}/rollback", DO_MODELS),
    (PUT, "/api/v1/models/{model}/aliases/{alias}", DO_MODELS),
    (DELETE, "/api/v1/models/{model}/aliases/{alias}", DO_MODELS),
    (PUT, "/api/v1/models/{model}/traffic", DO_MODELS),
    (PUT, "/api/v1/models/{model}/shadow", DO_MODELS),
    (DELETE, "/api/v1/models/{model}/shadow", DO_MODELS),
    (GET, "/api/v1/models/{model}/config", Need::Key),
    (PUT, "/api/v1/models/{model}/config", DO_MODELS),
    (GET, "/api/v1/plugins", SEE_JOBS),
    (POST, "/api/v1/plugins", DO_JOBS),
    (POST, "/api/v1/plugins/{digest}/resume-test", DO_JOBS),
    (GET, "/api/v1/jobs", SEE_JOBS),
    (POST, "/api/v1/jobs", DO_JOBS),
    (GET, "/api/v1/jobs/{job}", SEE_JOBS),
    (POST, "/api/v1/jobs/{job}/stop", DO_JOBS),
    (POST, "/api/v1/jobs/{job}/checkpoint", DO_JOBS),
    (POST, "/api/v1/jobs/{job}/preempt", DO_JOBS),
    (POST, "/api/v1/jobs/{job}/restart", DO_JOBS),
    (DELETE, "/api/v1/jobs/{job}", DO_JOBS),
    (POST, "/api/v1/jobs/gc", DO_JOBS),
    (GET, "/api/v1/queues", SEE_JOBS),
    (GET, "/api/v1/quota", SEE_JOBS),
    (GET, "/api/v1/schedules", SEE_JOBS),
    (POST, "/api/v1/schedules", DO_JOBS),
    (DELETE, "/api/v1/schedules/{name}", DO_JOBS),
    (GET, "/api/v1/secrets", DO_JOBS),
    (PUT, "/api/v1/secrets/{name}", ADMIN),
    (DELETE, "/api/v1/secrets/{name}", ADMIN),
    (GET, "/api/v1/jobs/{job}/logs", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/metrics", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/attempts", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/events", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/checkpoints", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/checkpoints/{which}", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/output", SEE_JOBS),
    (GET, "/api/v1/jobs/{job}/output/{*path}", SEE_JOBS),
    (GET, "/api/v1/events", SEE_JOBS),
    (GET, "/api/v1/datasets", SEE_JOBS),
    (POST, "/api/v1/datasets", DO_JOBS),
    (PUT, "/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", DO_JOBS),
    (POST, "/api/v1/datasets/{name}/uploads/{id}/commit", DO_JOBS),
    (DELETE, "/api/v1/datasets/{name}/{version}", DO_JOBS),
    (GET, "/api/v1/datasets/{name}/{version}/export", SEE_JOBS),
    (POST, "/api/v1/datasets/{name}/from-job", DO_JOBS),
    (GET, "/api/v1/devices", Need::Key),
    (GET, "/api/v1/keys", ADMIN),
    (POST, "/api/v1/keys", ADMIN),
    (DELETE, "/api/v1/keys/{name}", ADMIN),
];

/// The table, ready to be asked.
#[derive(Debug)]
pub(crate) struct Needs(HashMap<&'static str, Vec<(Method, Need)>>);

impl Needs {
    pub(crate) fn new() -> Needs {
        let mut needs: HashMap<_, Vec<_>> = HashMap::new();
        for (method, route, need) in TABLE {
            needs.entry(*route).or_default().push((method.clone(), *need));
        }
        Needs(needs)
    }

    /// What the table says of a route's template and a method.
    pub(crate) fn listed(&self, route: &str, method: &Method) -> Option<Need> {
        let method = if *method == Method::HEAD { &GET } else { method };
        let methods = self.0.get(route)?;
        methods.iter().find(|(listed, _)| listed == method).map(|(_, need)| *need)
    }

    /// What a route asks for; what the table does not have is for `admin` alone. No route at all may still be a path that the
    /// default model declares.
    pub(crate) fn of(&self, route: Option<&str>, method: &Method) -> Need {
        route.map_or(PREDICT, |route| self.listed(route, method).unwrap_or(ADMIN))
    }

    /// Every route and method that the table has.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Method)> {
        TABLE.iter().map(|(method, route, _)| (*route, method))
    }
}
