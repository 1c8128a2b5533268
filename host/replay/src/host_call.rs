//! The calls of a training that a recording contains: what the plugin asked of the host and what it was given, with
//! digests in place of data.

use std::collections::BTreeMap;

use saggar_store::{Digest, LoggedItem, LoggedKey};
use serde::{Deserialize, Serialize};

/// A call of a training, with its effects as digests: SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum HostCall {
    /// A graph was run once.
    Dispatch {
        /// The digest of the graph.
        graph: String,
        /// The digest of each input, by name. The batch of a step is among them.
        inputs: BTreeMap<String, String>,
        /// The digest of each output, by name.
        outputs: BTreeMap<String, String>,
    },
    /// A value of a series was reported.
    Metric {
        /// The step that it belongs to.
        step: u64,
        /// The name of the series.
        name: String,
        /// The bits of the `float64` value, as 16 hexadecimal digits.
        bits: String,
    },
    /// The state was saved.
    Checkpoint {
        /// The digest of all variables.
        variables: String,
    },
    /// A version of a model was published.
    Publish {
        /// The name of the model.
        model: String,
        /// The number of the version.
        version: u64,
        /// The digest of its variables.
        variables: String,
        /// The digest of its configuration.
        config: String,
    },
    /// A version of a model was read.
    OpenModel {
        /// The name of the model.
        model: String,
        /// The number of the version.
        version: u64,
        /// The digest of its variables.
        variables: String,
    },
    /// A file was stored.
    WriteOutput {
        /// The path of the file.
        path: String,
        /// The digest of its content.
        content: String,
    },
    /// An image, a table or a histogram was logged.
    LogItem {
        /// Its step, its kind and its name, joined by `/`.
        key: String,
        /// The digest of its content.
        content: String,
    },
    /// A phase began.
    Phase {
        /// The name of the phase.
        name: String,
    },
}

impl HostCall {
    /// Returns what the call is about, without its results. Calls of the same subject are compared in their order.
    pub(crate) fn subject(&self) -> String {
        match self {
            HostCall::Dispatch { graph, .. } => format!("a dispatch of graph {}", &graph[..graph.len().min(12)]),
            HostCall::Metric { step, name, .. } => format!("the value of `{name}` at step {step}"),
            HostCall::Checkpoint { .. } => "the checkpoint".to_owned(),
            HostCall::Publish { model, .. } => format!("the version of model `{model}` that was published"),
            HostCall::OpenModel { model, .. } => format!("the version of model `{model}` that was read"),
            HostCall::WriteOutput { path, .. } => format!("the output `{path}`"),
            HostCall::LogItem { key, .. } => format!("the logged item `{key}`"),
            HostCall::Phase { name } => format!("the phase `{name}`"),
        }
    }

    /// Returns what differs between a recorded call and its replay, or `None` if they are equal.
    pub(crate) fn difference(&self, replayed: &HostCall) -> Option<CallDifference> {
        if self == replayed {
            return None;
        }
        let whole = |recorded: &str, replayed: &str| CallDifference {
            what: self.subject(),
            recorded: recorded.to_owned(),
            replayed: replayed.to_owned(),
        };
        Some(match (self, replayed) {
            (
                HostCall::Dispatch { inputs, outputs, .. },
                HostCall::Dispatch { inputs: new_inputs, outputs: new_outputs, .. },
            ) => differing_tensor("input", inputs, new_inputs)
                .or_else(|| differing_tensor("output", outputs, new_outputs))
                .map_or_else(|| whole("other tensors", "these tensors"), |tensor| tensor.of(&self.subject())),
            (HostCall::Metric { bits: old, .. }, HostCall::Metric { bits: new, .. }) => {
                whole(&number_of_bits(old), &number_of_bits(new))
            }
            (HostCall::Checkpoint { variables: old }, HostCall::Checkpoint { variables: new })
            | (HostCall::WriteOutput { content: old, .. }, HostCall::WriteOutput { content: new, .. })
            | (HostCall::LogItem { content: old, .. }, HostCall::LogItem { content: new, .. }) => whole(old, new),
            (recorded, replayed) => whole(&format!("{recorded:?}"), &format!("{replayed:?}")),
        })
    }
}

/// A difference between a recorded call and its replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDifference {
    /// What differs.
    pub what: String,
    /// What was recorded.
    pub recorded: String,
    /// What the replay gave.
    pub replayed: String,
}

impl CallDifference {
    fn of(self, subject: &str) -> CallDifference {
        CallDifference { what: format!("{} of {subject}", self.what), ..self }
    }
}

fn differing_tensor(
    kind: &str,
    recorded: &BTreeMap<String, String>,
    replayed: &BTreeMap<String, String>,
) -> Option<CallDifference> {
    let absent = || "absent".to_owned();
    let names = recorded.keys().chain(replayed.keys());
    let name = names.into_iter().find(|name| recorded.get(*name) != replayed.get(*name))?;
    Some(CallDifference {
        what: format!("the {kind} `{name}`"),
        recorded: recorded.get(name).cloned().unwrap_or_else(absent),
        replayed: replayed.get(name).cloned().unwrap_or_else(absent),
    })
}

/// Returns the bits of a value as a recording contains them.
pub(crate) fn bits_of_number(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

fn number_of_bits(bits: &str) -> String {
    u64::from_str_radix(bits, 16).map_or_else(|_| bits.to_owned(), |bits| f64::from_bits(bits).to_string())
}

/// Returns the call that logs an item. An item that cannot be encoded, which no training logs, has no content.
pub(crate) fn log_item_call(key: &LoggedKey, item: &LoggedItem) -> HostCall {
    HostCall::LogItem { key: key.to_string(), content: digest_of(&item.encode().unwrap_or_default()) }
}

/// Returns the digest of bytes as a recording contains it.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    Digest::of(bytes).hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(x: &str, loss: &str) -> HostCall {
        let tensors = |name: &str, digest: &str| BTreeMap::from([(name.to_owned(), digest.to_owned())]);
        HostCall::Dispatch { graph: "ab".repeat(32), inputs: tensors("x", x), outputs: tensors("loss", loss) }
    }

    #[test]
    fn differences_name_the_tensor_or_the_value() {
        assert_eq!(dispatch("1", "2").difference(&dispatch("1", "2")), None);
        let input = dispatch("1", "2").difference(&dispatch("3", "4")).unwrap();
        assert_eq!(input.what, "the input `x` of a dispatch of graph abababababab");
        assert_eq!((input.recorded.as_str(), input.replayed.as_str()), ("1", "3"));
        let output = dispatch("1", "2").difference(&dispatch("1", "4")).unwrap();
        assert_eq!(output.what, "the output `loss` of a dispatch of graph abababababab");
        let metric = |value: f64| HostCall::Metric { step: 7, name: "loss".to_owned(), bits: bits_of_number(value) };
        let values = metric(0.5).difference(&metric(f64::NAN)).unwrap();
        assert_eq!(values.what, "the value of `loss` at step 7");
        assert_eq!((values.recorded.as_str(), values.replayed.as_str()), ("0.5", "NaN"));
        assert_eq!(metric(f64::NAN).difference(&metric(f64::NAN)), None, "bits are compared");
    }

    #[test]
    fn calls_round_trip_as_json() {
        let calls = [
            dispatch("1", "2"),
            HostCall::Checkpoint { variables: digest_of(b"") },
            HostCall::WriteOutput { path: "a/b".to_owned(), content: digest_of(b"x") },
            HostCall::LogItem { key: "1/image/a".to_owned(), content: digest_of(b"x") },
            HostCall::Phase { name: "post".to_owned() },
        ];
        for call in calls {
            let text = serde_json::to_string(&call).unwrap();
            assert_eq!(serde_json::from_str::<HostCall>(&text).unwrap(), call, "{text}");
        }
    }
}
