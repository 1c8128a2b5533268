//! The routes of a plugin's handlers, parsed and checked once.

use std::collections::BTreeSet;

use crate::bindings::http_handler as wit;
use crate::error::PluginError;
use crate::limits::{HANDLER_DESCRIPTION_BYTES_MAX, ROUTES_MAX};
use crate::model::route::{ModelRoute, RouteSegment, match_segments, parse_segments};

/// Paths below a model's that the host answers itself.
const HOST_PATHS: [&str; 2] = ["/", "/predict"];

/// The method of a handler's route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerMethod {
    /// `GET`, which also answers `HEAD`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `PATCH`.
    Patch,
}

impl HandlerMethod {
    /// Returns the method's name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            HandlerMethod::Get => "GET",
            HandlerMethod::Post => "POST",
            HandlerMethod::Put => "PUT",
            HandlerMethod::Delete => "DELETE",
            HandlerMethod::Patch => "PATCH",
        }
    }

    /// Returns the method of a request, or `None` if no handler can have it.
    pub fn from_name(name: &str) -> Option<HandlerMethod> {
        match name {
            "GET" | "HEAD" => Some(HandlerMethod::Get),
            "POST" => Some(HandlerMethod::Post),
            "PUT" => Some(HandlerMethod::Put),
            "DELETE" => Some(HandlerMethod::Delete),
            "PATCH" => Some(HandlerMethod::Patch),
            _ => None,
        }
    }

    fn from_wit(method: wit::HttpMethod) -> HandlerMethod {
        match method {
            wit::HttpMethod::Get => HandlerMethod::Get,
            wit::HttpMethod::Post => HandlerMethod::Post,
            wit::HttpMethod::Put => HandlerMethod::Put,
            wit::HttpMethod::Delete => HandlerMethod::Delete,
            wit::HttpMethod::Patch => HandlerMethod::Patch,
        }
    }

    pub(super) fn to_wit(self) -> wit::HttpMethod {
        match self {
            HandlerMethod::Get => wit::HttpMethod::Get,
            HandlerMethod::Post => wit::HttpMethod::Post,
            HandlerMethod::Put => wit::HttpMethod::Put,
            HandlerMethod::Delete => wit::HttpMethod::Delete,
            HandlerMethod::Patch => wit::HttpMethod::Patch,
        }
    }
}

/// A path and method that a plugin answers with its own code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRoute {
    /// The method.
    pub method: HandlerMethod,
    /// The path as the plugin gave it, such as `/hello/{name}`.
    pub path: String,
    /// Segments of the path.
    pub segments: Vec<RouteSegment>,
    /// What the route does; can be empty.
    pub description: String,
}

/// The handlers whose paths match a request, and the parameters in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerMatch {
    /// The index of the route with the request's method, or `None` if the path has other methods only.
    pub route: Option<usize>,
    /// The text in the place of each parameter of that route.
    pub parameters: Vec<(String, String)>,
    /// The methods of the path, ascending.
    pub methods: Vec<HandlerMethod>,
}

/// Returns the handlers of `path`, split at its slashes, or `None` if no route matches. Of the routes with the request's
/// method, the one with the first literal segment is chosen.
pub fn match_handlers(routes: &[HandlerRoute], method: Option<HandlerMethod>, path: &[&str]) -> Option<HandlerMatch> {
    let matching: Vec<_> = routes
        .iter()
        .enumerate()
        .filter_map(|(index, route)| Some((index, route, match_segments(&route.segments, path)?)))
        .collect();
    if matching.is_empty() {
        return None;
    }
    let methods: BTreeSet<HandlerMethod> = matching.iter().map(|(_, route, _)| route.method).collect();
    let chosen = matching
        .iter()
        .filter(|(_, route, _)| Some(route.method) == method)
        .min_by_key(|(_, route, _)| route.segments.iter().map(is_parameter).collect::<Vec<bool>>());
    let parameters = chosen.map_or_else(Vec::new, |(_, _, parameters)| {
        parameters.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    });
    Some(HandlerMatch { route: chosen.map(|(index, _, _)| *index), parameters, methods: methods.into_iter().collect() })
}

fn is_parameter(segment: &RouteSegment) -> bool {
    match segment {
        RouteSegment::Word(_) => false,
        RouteSegment::Input(_) => true,
    }
}

/// Parses and checks the handlers' routes that a plugin declares. `predictions` are the routes of its signature.
///
/// # Errors
/// `BadSignature`.
pub(crate) fn parse_handler_routes(
    given: Vec<wit::HandlerRoute>,
    predictions: &[ModelRoute],
) -> Result<Vec<HandlerRoute>, PluginError> {
    if given.len() > ROUTES_MAX {
        let count = given.len();
        return Err(PluginError::signature(format!("it has {count} handlers, more than {ROUTES_MAX}")));
    }
    let mut shapes: BTreeSet<(Option<HandlerMethod>, String)> =
        predictions.iter().map(|route| (None, path_shape(&route.segments))).collect();
    let mut routes = Vec::with_capacity(given.len());
    for wit::HandlerRoute { method, path, description } in given {
        let method = HandlerMethod::from_wit(method);
        let refuse = |reason: String| PluginError::signature(format!("handler {} {path:?}: {reason}", method.name()));
        let segments = parse_segments(&path).map_err(refuse)?;
        if HOST_PATHS.contains(&path.as_str()) {
            return Err(refuse("the host answers this path itself; choose another".to_owned()));
        }
        let mut names = BTreeSet::new();
        for segment in &segments {
            if let RouteSegment::Input(name) = segment
                && (name.is_empty() || !names.insert(name.as_str()))
            {
                return Err(refuse(format!("the parameter {name:?} has no name or occurs twice")));
            }
        }
        if description.len() > HANDLER_DESCRIPTION_BYTES_MAX {
            let bytes = description.len();
            let reason = format!("its description has {bytes} bytes, more than {HANDLER_DESCRIPTION_BYTES_MAX}");
            return Err(refuse(reason));
        }
        let shape = path_shape(&segments);
        if shapes.contains(&(None, shape.clone())) {
            return Err(refuse("a route of the signature matches the same paths".to_owned()));
        }
        if !shapes.insert((Some(method), shape)) {
            return Err(refuse("another handler matches the same paths".to_owned()));
        }
        routes.push(HandlerRoute { method, path, segments, description });
    }
    Ok(routes)
}

/// Returns a text that is equal for paths that match the same requests.
fn path_shape(segments: &[RouteSegment]) -> String {
    let segment = |segment: &RouteSegment| match segment {
        RouteSegment::Word(word) => format!("/{word}"),
        RouteSegment::Input(_) => "/{}".to_owned(),
    };
    segments.iter().map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[(wit::HttpMethod, &str)]) -> Result<Vec<HandlerRoute>, String> {
        let route = |(method, path): &(wit::HttpMethod, &str)| wit::HandlerRoute {
            method: *method,
            path: (*path).to_owned(),
            description: String::new(),
        };
        let predictions = [ModelRoute {
            path: "/dim/{gain}".to_owned(),
            segments: vec![RouteSegment::Word("dim".to_owned()), RouteSegment::Input("gain".to_owned())],
            fixed_inputs: Vec::new(),
        }];
        let parsed = parse_handler_routes(given.iter().map(route).collect(), &predictions);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn the_most_literal_route_of_the_method_is_called() {
        use wit::HttpMethod::{Delete, Get, Post};
        let routes = parsed(&[(Get, "/a/{x}"), (Get, "/a/b"), (Post, "/a/{y}"), (Delete, "/{z}/b")]).unwrap();
        let found = |method, path: &[&str]| match_handlers(&routes, HandlerMethod::from_name(method), path);
        assert_eq!(found("GET", &["a", "b"]).unwrap().route, Some(1));
        assert_eq!(found("HEAD", &["a", "c"]).unwrap().route, Some(0));
        assert_eq!(found("POST", &["a", "b"]).unwrap().parameters, [("y".to_owned(), "b".to_owned())]);
        let other = found("PUT", &["a", "b"]).unwrap();
        assert_eq!((other.route, other.parameters.len()), (None, 0));
        assert_eq!(other.methods, [HandlerMethod::Get, HandlerMethod::Post, HandlerMethod::Delete]);
        assert_eq!(found("OPTIONS", &["a", "b"]).unwrap().route, None);
        assert_eq!(found("GET", &["a"]), None);
    }

    #[test]
    fn routes_that_could_not_be_called_are_refused() {
        use wit::HttpMethod::{Get, Post};
        for (given, says) in [
            (&[(Get, "/")][..], "the host answers this path"),
            (&[(Post, "/predict")], "the host answers this path"),
            (&[(Get, "hello")], "begins with /"),
            (&[(Get, "/{}")], "has no name"),
            (&[(Get, "/{a}/{a}")], "occurs twice"),
            (&[(Get, "/dim/{level}")], "a route of the signature"),
            (&[(Get, "/a/{x}"), (Get, "/a/{y}")], "another handler"),
            (&[(Get, "/../x")], "neither letters"),
        ] {
            let error = parsed(given).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(parsed(&[(Get, "/a/{x}"), (Post, "/a/{y}")]).is_ok());
    }
}
