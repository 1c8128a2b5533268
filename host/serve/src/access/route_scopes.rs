//! The access requirement of each route: its action, for which `saggar_store::rights` defines the scope. The protocols
//! give it with the route. A method of a route for which none is given requires `admin`.

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
    /// A key that permits this action, also from this machine, because the response contains secrets.
    SecretEffect(AccessAction),
}

impl From<AccessAction> for RouteRequirement {
    fn from(action: AccessAction) -> RouteRequirement {
        RouteRequirement::Effect(action)
    }
}

/// The table of requirements, indexed by route.
#[derive(Debug)]
pub(crate) struct RouteScopes(HashMap<&'static str, Vec<(Method, RouteRequirement)>>);

impl RouteScopes {
    /// Creates the table of these routes, methods and requirements.
    pub(crate) fn new(requirements: impl IntoIterator<Item = (&'static str, Method, RouteRequirement)>) -> RouteScopes {
        let mut scopes: HashMap<_, Vec<_>> = HashMap::new();
        for (route, method, requirement) in requirements {
            scopes.entry(route).or_default().push((method, requirement));
        }
        RouteScopes(scopes)
    }

    /// Returns the table's requirement for a route template and a method.
    pub(crate) fn find(&self, route: &str, method: &Method) -> Option<RouteRequirement> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let methods = self.0.get(route)?;
        methods.iter().find(|(listed, _)| listed == method).map(|(_, need)| *need)
    }

    /// Returns the requirement of a route. A route that is not in the table requires `admin`. A path without a route
    /// can be one that the default model declares, which requires the right to predict.
    pub(crate) fn requirement(&self, route: Option<&str>, method: &Method) -> RouteRequirement {
        route.map_or(RouteRequirement::Effect(AccessAction::Predict), |route| {
            self.find(route, method).unwrap_or(RouteRequirement::Effect(AccessAction::Administer))
        })
    }
}
