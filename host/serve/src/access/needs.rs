//! What each route asks of a key: the effect that it has, whose scope the table of effects (`saggar_store::rights`) says. A
//! route that is not in the table wants `admin`; a test walks all routes so that there is none.

use std::collections::HashMap;

use axum::http::Method;
use saggar_store::Effect;

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
    /// A key that may do this.
    Effect(Effect),
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;
const OPTIONS: Method = Method::OPTIONS;

/// A route that has this effect.
const fn does(effect: Effect) -> Need {
    Need::Effect(effect)
}

/// Every route and method, as `App::routes` has them. Methods that read stand for `HEAD` too.
const TABLE: &[(Method, &str, Need)] = &[
    (GET, "/", Need::Page),
    (POST, "/", does(Effect::Predict)),
    (GET, "/console/{fingerprint}/{*name}", Need::Nothing),
    (GET, "/predict", does(Effect::Predict)),
    (POST, "/predict", does(Effect::Predict)),
    (GET, "/models/{model}/predict", does(Effect::Predict)),
    (POST, "/models/{model}/predict", does(Effect::Predict)),
    (GET, "/models/{model}/{*path}", does(Effect::Predict)),
    (POST, "/models/{model}/{*path}", does(Effect::Predict)),
    (POST, "/predictions", does(Effect::Predict)),
    (GET, "/predictions/{id}", does(Effect::ReadPrediction)),
    (PUT, "/predictions/{id}", does(Effect::Predict)),
    (POST, "/predictions/{id}/cancel", does(Effect::CancelPrediction)),
    (GET, "/v1/", Need::Key),
    (GET, "/v1/{*path}", Need::Key),
    (POST, "/v1/{*path}", does(Effect::Predict)),
    (OPTIONS, "/v1/{*path}", Need::Nothing),
    (GET, "/V1/{*path}", Need::Key),
    (POST, "/V1/{*path}", does(Effect::Predict)),
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
    (POST, "/v2/models/{model}/infer", does(Effect::Predict)),
    (GET, "/v2/models/{model}/versions/{version}", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/ready", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/config", Need::Key),
    (GET, "/v2/models/{model}/versions/{version}/stats", Need::Key),
    (POST, "/v2/models/{model}/versions/{version}/infer", does(Effect::Predict)),
    (POST, "/v2/repository/index", Need::Key),
    (POST, "/v2/repository/models/{model}/load", does(Effect::LoadModel)),
    (POST, "/v2/repository/models/{model}/unload", does(Effect::UnloadModel)),
    (GET, "/healthz", Need::Nothing),
    (GET, "/livez", Need::Nothing),
    (GET, "/readyz", Need::Nothing),
    (GET, "/version", Need::Nothing),
    (GET, "/metrics", Need::Metrics),
    (GET, "/openapi.json", Need::Key),
    (GET, "/api/v1/models", Need::Key),
    (GET, "/api/v1/models/{model}", Need::Key),
    (DELETE, "/api/v1/models/{model}", does(Effect::DeleteModel)),
    (DELETE, "/api/v1/models/{model}/versions/{version}", does(Effect::DeleteModel)),
    (POST, "/api/v1/models/{model}/import", does(Effect::PublishModel)),
    (POST, "/api/v1/models/{model}/versions", does(Effect::PublishModel)),
    (POST, "/api/v1/models/{model}/load", does(Effect::LoadModel)),
    (POST, "/api/v1/models/{model}/unload", does(Effect::UnloadModel)),
    (POST, "/api/v1/models/{model}/warm", does(Effect::LoadModel)),
    (POST, "/api/v1/models/{model}/promote", does(Effect::DeployModel)),
    (POST, "/api/v1/models/{model}/rollback", does(Effect::DeployModel)),
    (PUT, "/api/v1/models/{model}/aliases/{alias}", does(Effect::DeployModel)),
    (DELETE, "/api/v1/models/{model}/aliases/{alias}", does(Effect::DeployModel)),
    (PUT, "/api/v1/models/{model}/traffic", does(Effect::DeployModel)),
    (PUT, "/api/v1/models/{model}/shadow", does(Effect::DeployModel)),
    (DELETE, "/api/v1/models/{model}/shadow", does(Effect::DeployModel)),
    (PUT, "/api/v1/models/{model}/projects", does(Effect::AssignProjects)),
    (GET, "/api/v1/models/{model}/config", Need::Key),
    (PUT, "/api/v1/models/{model}/config", does(Effect::ConfigureModel)),
    (GET, "/api/v1/plugins", does(Effect::ReadPlugin)),
    (POST, "/api/v1/plugins", does(Effect::UploadPlugin)),
    (POST, "/api/v1/plugins/{digest}/resume-test", does(Effect::UploadPlugin)),
    (GET, "/api/v1/jobs", does(Effect::ReadJob)),
    (POST, "/api/v1/jobs", does(Effect::SubmitJob)),
    (GET, "/api/v1/jobs/{job}", does(Effect::ReadJob)),
    (POST, "/api/v1/jobs/{job}/stop", does(Effect::ControlJob)),
    (POST, "/api/v1/jobs/{job}/checkpoint", does(Effect::ControlJob)),
    (POST, "/api/v1/jobs/{job}/preempt", does(Effect::ControlJob)),
    (POST, "/api/v1/jobs/{job}/restart", does(Effect::SubmitJob)),
    (DELETE, "/api/v1/jobs/{job}", does(Effect::DeleteJob)),
    (POST, "/api/v1/jobs/gc", does(Effect::DeleteJob)),
    (GET, "/api/v1/queues", does(Effect::ReadJob)),
    (GET, "/api/v1/quota", does(Effect::ReadJob)),
    (GET, "/api/v1/schedules", does(Effect::ReadJob)),
    (POST, "/api/v1/schedules", does(Effect::SetSchedule)),
    (DELETE, "/api/v1/schedules/{name}", does(Effect::SetSchedule)),
    (GET, "/api/v1/secrets", does(Effect::ListSecrets)),
    (PUT, "/api/v1/secrets/{name}", does(Effect::SetSecret)),
    (DELETE, "/api/v1/secrets/{name}", does(Effect::SetSecret)),
    (GET, "/api/v1/jobs/{job}/logs", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/metrics", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/attempts", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/events", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/checkpoints", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/checkpoints/{which}", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/output", does(Effect::ReadJob)),
    (GET, "/api/v1/jobs/{job}/output/{*path}", does(Effect::ReadJob)),
    (GET, "/api/v1/events", does(Effect::ReadJob)),
    (GET, "/api/v1/datasets", does(Effect::ReadDataset)),
    (PUT, "/api/v1/datasets/{name}/projects", does(Effect::AssignProjects)),
    (POST, "/api/v1/datasets", does(Effect::PushDataset)),
    (PUT, "/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", does(Effect::PushDataset)),
    (POST, "/api/v1/datasets/{name}/uploads/{id}/commit", does(Effect::PushDataset)),
    (DELETE, "/api/v1/datasets/{name}/{version}", does(Effect::DeleteDataset)),
    (GET, "/api/v1/datasets/{name}/{version}/export", does(Effect::ReadDataset)),
    (POST, "/api/v1/datasets/{name}/from-job", does(Effect::PushDataset)),
    (GET, "/api/v1/devices", Need::Key),
    (GET, "/api/v1/keys", does(Effect::ManageKeys)),
    (POST, "/api/v1/keys", does(Effect::ManageKeys)),
    (DELETE, "/api/v1/keys/{name}", does(Effect::ManageKeys)),
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
        route.map_or(does(Effect::Predict), |route| self.listed(route, method).unwrap_or(does(Effect::Administer)))
    }

    /// Every route and method that the table has.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Method)> {
        TABLE.iter().map(|(method, route, _)| (*route, method))
    }
}
