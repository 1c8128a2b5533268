//! The requests of a load: the lines of a file with their weights, or one request of random inputs.

use std::collections::BTreeMap;
use std::path::Path;

use saggar_rest::models::PortDocument;
use saggar_rest::predictions::ModelDescription;
use saggar_store::Digest;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::counter_random::CounterRandom;
use super::load_target::LoadTarget;
use super::request_encoding::EncodedRequest;
use super::tensor_input::{inputs_from_json, random_inputs};
use crate::args::{BenchProtocol, BenchServeArgs};
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};

/// Random requests that are encoded before the load begins. One request is drawn of them for each that is sent.
const RANDOM_REQUESTS: usize = 16;
/// Maximum bytes of a file of requests.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The requests of a load. Clones would repeat large bodies, so it is shared.
#[derive(Debug)]
pub(super) struct RequestMix {
    requests: Vec<EncodedRequest>,
    /// The sum of the weights up to and including each request.
    cumulative: Vec<f64>,
    /// The models that are asked, as the requests name them.
    models: Vec<String>,
    /// What distinguishes this mix from others: the file's digest, or the seed and the items.
    pub(super) identity: String,
}

/// One line of a file of requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    model: Option<String>,
    inputs: Option<Map<String, Value>>,
    body: Option<Value>,
    weight: Option<f64>,
}

impl RequestMix {
    /// Reads the requests that the arguments name, and the inputs of their models from the server.
    ///
    /// # Errors
    /// Fails if a line or its inputs are invalid, or the server does not describe a model.
    pub(super) fn from_args(args: &BenchServeArgs, client: &ApiClient) -> Result<RequestMix, CliError> {
        let mut models = ModelDescriptions { client, known: BTreeMap::new() };
        let Some(file) = &args.requests else {
            let Some(model) = &args.model else {
                return Err(CliError::new(exit::USAGE, "usage", "neither a model nor requests are named").with_hint(
                    "name what to ask: --model digits, or --requests FILE; `saggar models ls` lists the models",
                ));
            };
            return RequestMix::random(args, model, models.inputs(model)?);
        };
        let no_file = |error| CliError::new(exit::NOT_FOUND, "no_file", format!("{}: {error}", file.display()));
        let length = std::fs::metadata(file).map_err(no_file)?.len();
        if length > FILE_BYTES_MAX {
            let message = format!("{} has {length} bytes, at most {FILE_BYTES_MAX} are read", file.display());
            return Err(CliError::invalid(message).with_hint("repeat a request by its `weight`, not by lines"));
        }
        let text = std::fs::read_to_string(file).map_err(no_file)?;
        RequestMix::from_lines(&text, file, args, |model| models.inputs(model))
    }

    fn random(args: &BenchServeArgs, model: &str, ports: Vec<PortDocument>) -> Result<RequestMix, CliError> {
        let mut random = CounterRandom::new(args.seed, 0);
        let request = |_| {
            let inputs = random_inputs(&ports, args.batch, &mut random).map_err(CliError::invalid)?;
            Ok(EncodedRequest::from_inputs(args.protocol, model, &inputs))
        };
        let requests = (0..RANDOM_REQUESTS).map(request).collect::<Result<Vec<_>, CliError>>()?;
        Ok(RequestMix {
            cumulative: (1..=requests.len()).map(|count| count as f64).collect(),
            requests,
            models: vec![model.to_owned()],
            identity: format!("random, seed {}, {} in a request", args.seed, args.batch),
        })
    }

    fn from_lines(
        text: &str,
        file: &Path,
        args: &BenchServeArgs,
        mut inputs_of: impl FnMut(&str) -> Result<Vec<PortDocument>, CliError>,
    ) -> Result<RequestMix, CliError> {
        let identity = format!("sha256:{}", Digest::of(text.as_bytes()).hex());
        let mut mix = RequestMix { requests: Vec::new(), cumulative: Vec::new(), models: Vec::new(), identity };
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let refuse = |reason: String| {
                CliError::invalid(format!("{}:{number}: {reason}", file.display()))
                    .with_hint("a line is such as {\"model\": \"digits\", \"inputs\": {\"image\": [[0, 9], [9, 0]]}, \"weight\": 2}")
            };
            let request: RequestLine = serde_json::from_str(line).map_err(|error| refuse(error.to_string()))?;
            let weight = request.weight.unwrap_or(1.0);
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(refuse(format!("the weight {weight} is not above 0")));
            }
            let Some(model) = request.model.as_ref().or(args.model.as_ref()) else {
                return Err(refuse("it names no model, and neither does --model".to_owned()));
            };
            let encoded = match (request.inputs, request.body) {
                (Some(values), None) => {
                    let inputs = inputs_from_json(&inputs_of(model)?, &values).map_err(refuse)?;
                    EncodedRequest::from_inputs(args.protocol, model, &inputs)
                }
                (None, Some(body)) if args.protocol == BenchProtocol::Json => {
                    EncodedRequest::from_json_body(model, &body)
                }
                (None, Some(_)) => {
                    return Err(refuse("a `body` is sent as JSON only; other protocols need `inputs`".to_owned()));
                }
                (None, None) | (Some(_), Some(_)) => {
                    return Err(refuse("it needs either `inputs` or `body`".to_owned()));
                }
            };
            if !mix.models.contains(model) {
                mix.models.push(model.clone());
            }
            mix.cumulative.push(mix.cumulative.last().unwrap_or(&0.0) + weight);
            mix.requests.push(encoded);
        }
        if mix.requests.is_empty() {
            return Err(CliError::invalid(format!("{} has no request", file.display())));
        }
        Ok(mix)
    }

    /// Returns a request, drawn by the weights.
    pub(super) fn draw(&self, random: &mut CounterRandom) -> &EncodedRequest {
        let total = self.cumulative.last().copied().unwrap_or_default();
        let at = random.next_unit() * total;
        let index = self.cumulative.partition_point(|&sum| sum <= at);
        &self.requests[index.min(self.requests.len() - 1)]
    }

    /// Addresses the requests to a server.
    pub(super) fn addressed_to(mut self, target: &LoadTarget) -> RequestMix {
        self.requests.iter_mut().for_each(|request| request.uri = target.request_uri(request.uri.path()));
        self
    }

    /// Returns the names of the models, in the order of the requests: `digits, echo`.
    pub(super) fn model_names(&self) -> String {
        self.models.join(", ")
    }
}

/// The inputs of models, each requested from the server once.
struct ModelDescriptions<'a> {
    client: &'a ApiClient,
    known: BTreeMap<String, Vec<PortDocument>>,
}

impl ModelDescriptions<'_> {
    fn inputs(&mut self, model: &str) -> Result<Vec<PortDocument>, CliError> {
        if let Some(ports) = self.known.get(model) {
            return Ok(ports.clone());
        }
        let path = format!("/models/{}/predict", encode_path_segment(model));
        let described: ModelDescription = self.client.get(&path)?;
        self.known.insert(model.to_owned(), described.signature.inputs.clone());
        Ok(described.signature.inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BenchServeArgs;

    fn mix(text: &str, args: &BenchServeArgs) -> Result<RequestMix, CliError> {
        let x =
            PortDocument { name: "x".to_owned(), dtype: "float32".to_owned(), shape: vec![2], ..Default::default() };
        RequestMix::from_lines(text, Path::new("mix.jsonl"), args, |_| Ok(vec![x.clone()]))
    }

    #[test]
    fn requests_are_drawn_by_their_weights() {
        let args = BenchServeArgs { model: Some("a".to_owned()), ..BenchServeArgs::default() };
        let text = "{\"inputs\": {\"x\": [1, 2]}, \"weight\": 3}\n\n{\"model\": \"b\", \"body\": {}}\n";
        let mix = mix(text, &args).unwrap();
        assert_eq!(mix.model_names(), "a, b");
        let mut random = CounterRandom::new(1, 0);
        let first = (0..4000).filter(|_| mix.draw(&mut random).uri.path() == "/models/a/predict").count();
        assert!((2850..3150).contains(&first), "{first} of 4000, and 3000 were expected");
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        let json = BenchServeArgs { model: Some("a".to_owned()), ..BenchServeArgs::default() };
        let grpc = BenchServeArgs { protocol: BenchProtocol::Grpc, ..json.clone() };
        let unnamed = BenchServeArgs::default();
        for (text, args, reason) in [
            ("{", &json, "mix.jsonl:1: EOF"),
            ("\n{\"inputs\": {\"y\": 1}}", &json, "mix.jsonl:2: the model has no input `y`; it has x"),
            ("{\"inputs\": {}, \"body\": {}}", &json, "either `inputs` or `body`"),
            ("{\"weight\": 1}", &json, "either `inputs` or `body`"),
            ("{\"body\": {}, \"weight\": 0}", &json, "the weight 0 is not above 0"),
            ("{\"body\": {}, \"wait\": 1}", &json, "unknown field `wait`"),
            ("{\"body\": {}}", &grpc, "other protocols need `inputs`"),
            ("{\"body\": {}}", &unnamed, "it names no model"),
            ("", &json, "has no request"),
        ] {
            let refused = mix(text, args).unwrap_err();
            assert!(refused.exit_code == exit::INVALID && refused.message.contains(reason), "{refused}");
        }
    }
}
