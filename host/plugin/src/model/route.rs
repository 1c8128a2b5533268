//! Additional paths of a model, parsed and checked once.

use std::collections::BTreeSet;

use super::model_port::{ModelPort, encode_in_range};
use crate::bindings::predictor;
use crate::error::PluginError;
use crate::limits::{ROUTE_BYTES_MAX, ROUTES_MAX};

/// A segment of a path, between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSegment {
    /// This exact word.
    Word(String),
    /// Any text, which is the value of the input or parameter with this name.
    Input(String),
}

/// A path that a model can be requested at.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRoute {
    /// The path as the plugin gave it, such as `/brighten/{gain}`.
    pub path: String,
    /// Segments of the path; empty for `/`.
    pub segments: Vec<RouteSegment>,
    /// One item of each input whose value the route fixes: dense little-endian elements.
    pub fixed_inputs: Vec<(String, Vec<u8>)>,
}

impl ModelRoute {
    /// Returns the values of the inputs in `path` by name, as text, or `None` if `path` does not match this route.
    pub fn match_path<'p>(&self, path: &[&'p str]) -> Option<Vec<(&str, &'p str)>> {
        match_segments(&self.segments, path)
    }

    /// Returns the names of the inputs that the route gives, in its path or as fixed values.
    pub fn input_names(&self) -> impl Iterator<Item = &str> {
        let in_path = self.segments.iter().filter_map(|segment| match segment {
            RouteSegment::Input(name) => Some(name.as_str()),
            RouteSegment::Word(_) => None,
        });
        in_path.chain(self.fixed_inputs.iter().map(|(name, _)| name.as_str()))
    }
}

/// Returns the texts in the places of names in `segments`, or `None` if `path` does not match them.
pub(crate) fn match_segments<'s, 'p>(
    segments: &'s [RouteSegment],
    path: &[&'p str],
) -> Option<Vec<(&'s str, &'p str)>> {
    if path.len() != segments.len() {
        return None;
    }
    let mut found = Vec::new();
    for (segment, text) in segments.iter().zip(path) {
        match segment {
            RouteSegment::Word(word) if word == text => {}
            RouteSegment::Word(_) => return None,
            RouteSegment::Input(name) => found.push((name.as_str(), *text)),
        }
    }
    Some(found)
}

/// Parses and checks the routes of a signature.
///
/// # Errors
/// `BadSignature`.
pub(super) fn parse_routes(given: Vec<predictor::Route>, inputs: &[ModelPort]) -> Result<Vec<ModelRoute>, PluginError> {
    if given.len() > ROUTES_MAX {
        let count = given.len();
        return Err(PluginError::signature(format!("it has {count} routes, more than {ROUTES_MAX}")));
    }
    let mut paths = BTreeSet::new();
    let mut routes = Vec::with_capacity(given.len());
    for predictor::Route { path, inputs: values } in given {
        let refuse = |reason: String| PluginError::signature(format!("route {path:?}: {reason}"));
        let port = |name: &str| inputs.iter().find(|port| port.name == name);
        let segments = parse_segments(&path).map_err(refuse)?;
        let mut given = Vec::with_capacity(values.len());
        for (name, value) in values {
            let port = port(&name).ok_or_else(|| refuse(format!("the model has no input {name:?}")))?;
            let held = encode_in_range(port.item.dtype, value);
            let element = held.ok_or_else(|| refuse(format!("{} does not hold {value}", port.item.dtype)))?;
            given.push((name, element.repeat(port.item.shape.elements())));
        }
        let shape: Vec<Option<&str>> = segments
            .iter()
            .map(|segment| match segment {
                RouteSegment::Word(word) => Some(word.as_str()),
                RouteSegment::Input(_) => None,
            })
            .collect();
        if !paths.insert(format!("{shape:?}")) {
            return Err(refuse("another route matches the same paths".to_owned()));
        }
        let route = ModelRoute { path: path.clone(), segments, fixed_inputs: given };
        let mut names = BTreeSet::new();
        for name in route.input_names() {
            let found = port(name).ok_or_else(|| refuse(format!("the model has no input {name:?}")))?;
            if !names.insert(name) {
                return Err(refuse(format!("it gives the input {name:?} twice")));
            }
            let in_path = route.segments.contains(&RouteSegment::Input(name.to_owned()));
            if in_path && found.text_bytes_max().is_none() && found.item.shape.elements() != 1 {
                return Err(refuse(format!("the input {name:?} is {}, and a path holds one number", found.item)));
            }
        }
        routes.push(route);
    }
    Ok(routes)
}

/// Returns the segments of a path, or what is wrong with it.
pub(crate) fn parse_segments(path: &str) -> Result<Vec<RouteSegment>, String> {
    let Some(rest) = path.strip_prefix('/').filter(|_| path.len() <= ROUTE_BYTES_MAX) else {
        return Err(format!("a path begins with / and has at most {ROUTE_BYTES_MAX} bytes"));
    };
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let segment = |text: &str| {
        let input = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match input {
            Some(name) => Ok(RouteSegment::Input(name.to_owned())),
            None if !text.is_empty() && text.bytes().all(plain) && !text.starts_with('.') => {
                Ok(RouteSegment::Word(text.to_owned()))
            }
            None => Err(format!("{text:?} is neither letters, digits, `.`, `_`, `-` nor an input in braces")),
        }
    };
    rest.split('/').map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use saggar_tensor::{DType, Descriptor, Shape};

    fn port(name: &str, dtype: DType, dims: &[usize], semantics: Option<&str>) -> ModelPort {
        ModelPort {
            name: name.to_owned(),
            item: Descriptor::new(dtype, Shape::new(dims).unwrap()),
            semantics: semantics.map(str::to_owned),
            classes: Vec::new(),
            default: None,
            preprocessing: None,
        }
    }

    fn routes_from(given: &[(&str, &[(&str, f64)])]) -> Result<Vec<ModelRoute>, String> {
        let inputs = [
            port("image", DType::U8, &[2, 2], Some("image")),
            port("gain", DType::F32, &[], None),
            port("word", DType::U8, &[8], Some("text")),
        ];
        let route = |(path, values): &(&str, &[(&str, f64)])| predictor::Route {
            path: (*path).to_owned(),
            inputs: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        parse_routes(given.iter().map(route).collect(), &inputs).map_err(|error| error.to_string())
    }

    #[test]
    fn route_paths_match_and_name_their_inputs() {
        let routes = routes_from(&[("/", &[]), ("/dim/{gain}/{word}", &[]), ("/dim/most", &[("gain", 0.5)])]).unwrap();
        assert_eq!(routes[0].match_path(&[]), Some(vec![]));
        assert_eq!(routes[1].match_path(&["dim", "0.25", "so"]), Some(vec![("gain", "0.25"), ("word", "so")]));
        assert_eq!(routes[1].match_path(&["dim", "0.25"]), None);
        assert_eq!(routes[2].fixed_inputs, [("gain".to_owned(), 0.5_f32.to_le_bytes().to_vec())]);
        assert_eq!(routes[2].match_path(&["dim", "least"]), None);
    }

    #[test]
    fn invalid_routes_are_refused() {
        for (given, says) in [
            (&[("dim", &[][..])][..], "begins with /"),
            (&[("/a//b", &[])], "neither letters"),
            (&[("/../etc", &[])], "neither letters"),
            (&[("/a b", &[])], "neither letters"),
            (&[("/{volume}", &[])], "no input \"volume\""),
            (&[("/{image}", &[])], "a path holds one number"),
            (&[("/a", &[("volume", 1.0)])], "no input \"volume\""),
            (&[("/a", &[("image", 256.0)])], "does not hold 256"),
            (&[("/{gain}", &[("gain", 1.0)])], "twice"),
            (&[("/a/{gain}", &[]), ("/a/{word}", &[])], "another route matches"),
        ] {
            let error = routes_from(given).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
