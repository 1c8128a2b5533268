//! The access requirement of each route: its action, for which `saggar_store::rights` defines the scope. A route that
//! is not in the table requires `admin`. A test checks that every route is in the table.

use std::collections::HashMap;

use axum::http::Method;
use saggar_store::AccessAction;

/// The requirement of a route on a protected listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteRequirement {
    /// No key: probes, and files that reveal no state.
    Nothing,
    /// No key for a browser's page, which is the same for all clients. Any key for programs.
    Page,
    /// Any key.
    Key,
    /// No key on this machine, `metrics:read` elsewhere.
    Metrics,
    /// A key that permits this action.
    Effect(AccessAction),
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;
const OPTIONS: Method = Method::OPTIONS;

/// Returns the requirement of a route with this action.
const fn requires_effect(effect: AccessAction) -> RouteRequirement {
    RouteRequirement::Effect(effect)
}

/// Every route and method, as in `AppState::routes`. `GET` also covers `HEAD`.
const ROUTE_REQUIREMENTS: &[(Method, &str, RouteRequirement)] = &[
    (GET, "/", RouteRequirement::Page),
    (POST, "/", requires_effect(AccessAction::Predict)),
    (GET, "/console/{fingerprint}/{*name}", RouteRequirement::Nothing),
    (GET, "/docs", RouteRequirement::Nothing),
    (GET, "/docs/{*path}", RouteRequirement::Nothing),
    (GET, "/predict", requires_effect(AccessAction::Predict)),
    (POST, "/predict", requires_effect(AccessAction::Predict)),
    (GET, "/models/{model}/predict", requires_effect(AccessAction::Predict)),
    (POST, "/models/{model}/predict", requires_effect(AccessAction::Predict)),
    (GET, "/models/{model}/{*path}", requires_effect(AccessAction::Predict)),
    (POST, "/models/{model}/{*path}", requires_effect(AccessAction::Predict)),
    (POST, "/predictions", requires_effect(AccessAction::Predict)),
    (GET, "/predictions/{id}", requires_effect(AccessAction::ReadPrediction)),
    (PUT, "/predictions/{id}", requires_effect(AccessAction::Predict)),
    (POST, "/predictions/{id}/cancel", requires_effect(AccessAction::CancelPrediction)),
    (GET, "/v1/", RouteRequirement::Key),
    (GET, "/v1/{*path}", RouteRequirement::Key),
    (POST, "/v1/{*path}", requires_effect(AccessAction::Predict)),
    (OPTIONS, "/v1/{*path}", RouteRequirement::Nothing),
    (GET, "/V1/{*path}", RouteRequirement::Key),
    (POST, "/V1/{*path}", requires_effect(AccessAction::Predict)),
    (OPTIONS, "/V1/{*path}", RouteRequirement::Nothing),
    (GET, "/v2", RouteRequirement::Key),
    (GET, "/v2/", RouteRequirement::Key),
    (GET, "/v2/health/live", RouteRequirement::Nothing),
    (GET, "/v2/health/ready", RouteRequirement::Nothing),
    (GET, "/v2/models/stats", RouteRequirement::Key),
    (GET, "/v2/models/{model}", RouteRequirement::Key),
    (GET, "/v2/models/{model}/ready", RouteRequirement::Key),
    (GET, "/v2/models/{model}/config", RouteRequirement::Key),
    (GET, "/v2/models/{model}/stats", RouteRequirement::Key),
    (POST, "/v2/models/{model}/infer", requires_effect(AccessAction::Predict)),
    (GET, "/v2/models/{model}/versions/{version}", RouteRequirement::Key),
    (GET, "/v2/models/{model}/versions/{version}/ready", RouteRequirement::Key),
    (GET, "/v2/models/{model}/versions/{version}/config", RouteRequirement::Key),
    (GET, "/v2/models/{model}/versions/{version}/stats", RouteRequirement::Key),
    (POST, "/v2/models/{model}/versions/{version}/infer", requires_effect(AccessAction::Predict)),
    (POST, "/v2/repository/index", RouteRequirement::Key),
    (POST, "/v2/repository/models/{model}/load", requires_effect(AccessAction::LoadModel)),
    (POST, "/v2/repository/models/{model}/unload", requires_effect(AccessAction::UnloadModel)),
    (GET, "/healthz", RouteRequirement::Nothing),
    (GET, "/livez", RouteRequirement::Nothing),
    (GET, "/readyz", RouteRequirement::Nothing),
    (GET, "/version", RouteRequirement::Nothing),
    (GET, "/metrics", RouteRequirement::Metrics),
    (GET, "/openapi.json", RouteRequirement::Key),
    (GET, "/api/v1/models", RouteRequirement::Key),
    (GET, "/api/v1/models/{model}", RouteRequirement::Key),
    (DELETE, "/api/v1/models/{model}", requires_effect(AccessAction::DeleteModel)),
    (DELETE, "/api/v1/models/{model}/versions/{version}", requires_effect(AccessAction::DeleteModel)),
    (POST, "/api/v1/models/{model}/import", requires_effect(AccessAction::PublishModel)),
    (POST, "/api/v1/models/{model}/versions", requires_effect(AccessAction::PublishModel)),
    (POST, "/api/v1/models/{model}/load", requires_effect(AccessAction::LoadModel)),
    (POST, "/api/v1/models/{model}/unload", requires_effect(AccessAction::UnloadModel)),
    (POST, "/api/v1/models/{model}/warm", requires_effect(AccessAction::LoadModel)),
    (POST, "/api/v1/models/{model}/promote", requires_effect(AccessAction::DeployModel)),
    (POST, "/api/v1/models/{model}/rollback", requires_effect(AccessAction::DeployModel)),
    (PUT, "/api/v1/models/{model}/aliases/{alias}", requires_effect(AccessAction::DeployModel)),
    (DELETE, "/api/v1/models/{model}/aliases/{alias}", requires_effect(AccessAction::DeployModel)),
    (PUT, "/api/v1/models/{model}/traffic", requires_effect(AccessAction::DeployModel)),
    (PUT, "/api/v1/models/{model}/shadow", requires_effect(AccessAction::DeployModel)),
    (DELETE, "/api/v1/models/{model}/shadow", requires_effect(AccessAction::DeployModel)),
    (PUT, "/api/v1/models/{model}/projects", requires_effect(AccessAction::AssignProjects)),
    (GET, "/api/v1/models/{model}/config", RouteRequirement::Key),
    (PUT, "/api/v1/models/{model}/config", requires_effect(AccessAction::ConfigureModel)),
    (GET, "/api/v1/plugins", requires_effect(AccessAction::ReadPlugin)),
    (POST, "/api/v1/plugins", requires_effect(AccessAction::UploadPlugin)),
    (POST, "/api/v1/plugins/{digest}/resume-test", requires_effect(AccessAction::UploadPlugin)),
    (GET, "/api/v1/jobs", requires_effect(AccessAction::ReadJob)),
    (POST, "/api/v1/jobs", requires_effect(AccessAction::SubmitJob)),
    (GET, "/api/v1/jobs/{job}", requires_effect(AccessAction::ReadJob)),
    (POST, "/api/v1/jobs/{job}/stop", requires_effect(AccessAction::ControlJob)),
    (POST, "/api/v1/jobs/{job}/checkpoint", requires_effect(AccessAction::ControlJob)),
    (POST, "/api/v1/jobs/{job}/preempt", requires_effect(AccessAction::ControlJob)),
    (POST, "/api/v1/jobs/{job}/restart", requires_effect(AccessAction::SubmitJob)),
    (DELETE, "/api/v1/jobs/{job}", requires_effect(AccessAction::DeleteJob)),
    (POST, "/api/v1/jobs/gc", requires_effect(AccessAction::DeleteJob)),
    (GET, "/api/v1/queues", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/quota", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/schedules", requires_effect(AccessAction::ReadJob)),
    (POST, "/api/v1/schedules", requires_effect(AccessAction::SetSchedule)),
    (DELETE, "/api/v1/schedules/{name}", requires_effect(AccessAction::SetSchedule)),
    (GET, "/api/v1/secrets", requires_effect(AccessAction::ListSecrets)),
    (PUT, "/api/v1/secrets/{name}", requires_effect(AccessAction::SetSecret)),
    (DELETE, "/api/v1/secrets/{name}", requires_effect(AccessAction::SetSecret)),
    (GET, "/api/v1/jobs/{job}/logs", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/metrics", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/attempts", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/events", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/checkpoints", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/checkpoints/{which}", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/output", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/jobs/{job}/output/{*path}", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/events", requires_effect(AccessAction::ReadJob)),
    (GET, "/api/v1/datasets", requires_effect(AccessAction::ReadDataset)),
    (PUT, "/api/v1/datasets/{name}/projects", requires_effect(AccessAction::AssignProjects)),
    (POST, "/api/v1/datasets", requires_effect(AccessAction::PushDataset)),
    (PUT, "/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", requires_effect(AccessAction::PushDataset)),
    (POST, "/api/v1/datasets/{name}/uploads/{id}/commit", requires_effect(AccessAction::PushDataset)),
    (DELETE, "/api/v1/datasets/{name}/{version}", requires_effect(AccessAction::DeleteDataset)),
    (GET, "/api/v1/datasets/{name}/{version}/export", requires_effect(AccessAction::ReadDataset)),
    (POST, "/api/v1/datasets/{name}/from-job", requires_effect(AccessAction::PushDataset)),
    (GET, "/api/v1/devices", RouteRequirement::Key),
    (GET, "/api/v1/keys", requires_effect(AccessAction::ManageKeys)),
    (POST, "/api/v1/keys", requires_effect(AccessAction::ManageKeys)),
    (DELETE, "/api/v1/keys/{name}", requires_effect(AccessAction::ManageKeys)),
];

/// The table of requirements, indexed by route.
#[derive(Debug)]
pub(crate) struct RouteScopes(HashMap<&'static str, Vec<(Method, RouteRequirement)>>);

impl RouteScopes {
    pub(crate) fn new() -> RouteScopes {
        let mut needs: HashMap<_, Vec<_>> = HashMap::new();
        for (method, route, need) in ROUTE_REQUIREMENTS {
            needs.entry(*route).or_default().push((method.clone(), *need));
        }
        RouteScopes(needs)
    }

    /// Returns the table's requirement for a route template and a method.
    pub(crate) fn find(&self, route: &str, method: &Method) -> Option<RouteRequirement> {
        let method = if *method == Method::HEAD { &GET } else { method };
        let methods = self.0.get(route)?;
        methods.iter().find(|(listed, _)| listed == method).map(|(_, need)| *need)
    }

    /// Returns the requirement of a route. A route that is not in the table requires `admin`. A path without a route
    /// can be one that the default model declares, which requires the right to predict.
    pub(crate) fn requirement(&self, route: Option<&str>, method: &Method) -> RouteRequirement {
        route.map_or(requires_effect(AccessAction::Predict), |route| {
            self.find(route, method).unwrap_or(requires_effect(AccessAction::Administer))
        })
    }

    /// Returns every route and method in the table.
    #[cfg(test)]
    pub(crate) fn all_routes() -> impl Iterator<Item = (&'static str, &'static Method)> {
        ROUTE_REQUIREMENTS.iter().map(|(method, route, _)| (*route, method))
    }
}
