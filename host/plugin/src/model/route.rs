//! Paths of a model's own, checked once.

use std::collections::BTreeSet;

use super::ModelPort;
use super::signature::held;
use crate::bindings::predictor;
use crate::error::PluginError;
use crate::limits::{ROUTE_BYTES_MAX, ROUTES_MAX};

/// A part of a path between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This word.
    Word(String),
    /// Anything, which is the value of the input of this name.
    Input(String),
}

/// A path under which a model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// As the plugin gave it: `/brighten/{gain}`.
    pub path: String,
    /// Its segments; none for `/`.
    pub segments: Vec<Segment>,
    /// One item of each input that the route gives by itself: dense little-endian elements.
    pub given: Vec<(String, Vec<u8>)>,
}

impl Route {
    /// What the inputs in the path are, if `path` is one of this route's: by name, as they stand there.
    pub fn matches<'p>(&self, path: &[&'p str]) -> Option<Vec<(&str, &'p str)>> {
        if path.len() != self.segments.len() {
            return None;
        }
        let mut inputs = Vec::new();
        for (segment, text) in self.segments.iter().zip(path) {
            match segment {
                Segment::Word(word) if word == text => {}
                Segment::Word(_) => return None,
                Segment::Input(name) => inputs.push((name.as_str(), *text)),
            }
        }
        Some(inputs)
    }

    /// Names of the inputs that the route gives, by its path or by itself.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let in_path = self.segments.iter().filter_map(|segment| match segment {
            Segment::Input(name) => Some(name.as_str()),
            Segment::Word(_) => None,
        });
        in_path.chain(self.given.iter().map(|(name, _)| name.as_str()))
    }
}

/// # Errors
/// `BadSignature`.
pub(super) fn routes(given: Vec<predictor::Route>, inputs: &[ModelPort]) -> Result<Vec<Route>, PluginError> {
    if given.len() > ROUTES_MAX {
        let count = given.len();
        return Err(PluginError::signature(format!("it has {count} routes, more than {ROUTES_MAX}")));
    }
    let mut paths = BTreeSet::new();
    let mut routes = Vec::with_capacity(given.len());
    for predictor::Route { path, inputs: values } in given {
        let refuse = |reason: String| PluginError::signature(format!("route {path:?}: {reason}"));
        let port = |name: &str| inputs.iter().find(|port| port.name == name);
        let segments = segments(&path).map_err(refuse)?;
        let mut given = Vec::with_capacity(values.len());
        for (name, value) in values {
            let port = port(&name).ok_or_else(|| refuse(format!("the model has no input {name:?}")))?;
            let held = held(port.item.dtype, value);
            let element = held.ok_or_else(|| refuse(format!("{} does not hold {value}", port.item.dtype)))?;
            given.push((name, element.repeat(port.item.shape.elements())));
        }
        let shape: Vec<Option<&str>> = segments
            .iter()
            .map(|segment| match segment {
                Segment::Word(word) => Some(word.as_str()),
                Segment::Input(_) => None,
            })
            .collect();
        if !paths.insert(format!("{shape:?}")) {
            return Err(refuse("another route matches the same paths".to_owned()));
        }
        let route = Route { path: path.clone(), segments, given };
        let mut names = BTreeSet::new();
        for name in route.inputs() {
            let found = port(name).ok_or_else(|| refuse(format!("the model has no input {name:?}")))?;
            if !names.insert(name) {
                return Err(refuse(format!("it gives the input {name:?} twice")));
            }
            let in_path = route.segments.contains(&Segment::Input(name.to_owned()));
            if in_path && found.text_bytes().is_none() && found.item.shape.elements() != 1 {
                return Err(refuse(format!("the input {name:?} is {}, and a path holds one number", found.item)));
            }
        }
        routes.push(route);
    }
    Ok(routes)
}

fn segments(path: &str) -> Result<Vec<Segment>, String> {
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
            Some(name) => Ok(Segment::Input(name.to_owned())),
            None if !text.is_empty() && text.bytes().all(plain) && !text.starts_with('.') => {
                Ok(Segment::Word(text.to_owned()))
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
        }
    }

    fn made(given: &[(&str, &[(&str, f64)])]) -> Result<Vec<Route>, String> {
        let inputs = [
            port("image", DType::U8, &[2, 2], Some("image")),
            port("gain", DType::F32, &[], None),
            port("word", DType::U8, &[8], Some("text")),
        ];
        let route = |(path, values): &(&str, &[(&str, f64)])| predictor::Route {
            path: (*path).to_owned(),
            inputs: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        routes(given.iter().map(route).collect(), &inputs).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_are_matched_and_their_inputs_named() {
        let routes = made(&[("/", &[]), ("/dim/{gain}/{word}", &[]), ("/dim/most", &[("gain", 0.5)])]).unwrap();
        assert_eq!(routes[0].matches(&[]), Some(vec![]));
        assert_eq!(routes[1].matches(&["dim", "0.25", "so"]), Some(vec![("gain", "0.25"), ("word", "so")]));
        assert_eq!(routes[1].matches(&["dim", "0.25"]), None);
        assert_eq!(routes[2].given, [("gain".to_owned(), 0.5_f32.to_le_bytes().to_vec())]);
        assert_eq!(routes[2].matches(&["dim", "least"]), None);
    }

    #[test]
    fn routes_that_make_no_sense_are_refused() {
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
            let error = made(given).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
