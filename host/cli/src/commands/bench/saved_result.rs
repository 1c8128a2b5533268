//! The document of a measurement, as `--json` prints and `--save` writes it. `saggar bench diff` reads two of them.
//!
//! Every kind of measurement has the same head and the same list of series, so that one comparison fits all. What only
//! one kind has is in `result`, which the comparison does not read.

use std::collections::BTreeMap;
use std::path::Path;

use saggar_clock::{Clock, SystemClock};
use saggar_serve::program_version::OWN_VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::MachineDescription;
use crate::exit::{self, CliError};
use crate::units;

/// The version of this document's form.
const FORMAT: u32 = 1;
/// Maximum bytes of a file that is read as a result.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BenchKind {
    Train,
    Infer,
    Serve,
    Data,
    Scale,
}

impl BenchKind {
    /// Returns the name of the command that measures it.
    pub(super) fn command(self) -> &'static str {
        match self {
            BenchKind::Train => "saggar bench train",
            BenchKind::Infer => "saggar bench infer",
            BenchKind::Serve => "saggar bench serve",
            BenchKind::Data => "saggar bench data",
            BenchKind::Scale => "saggar bench scale",
        }
    }
}

/// Whether more or less of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BetterDirection {
    Higher,
    Lower,
}

/// One figure, measured several times: in consecutive intervals of a run, or in repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MeasuredSeries {
    /// The conditions within the measurement, such as `8 connections`.
    pub(super) group: String,
    /// The figure, such as `requests/s`.
    pub(super) name: String,
    pub(super) better: BetterDirection,
    /// The values in the order in which they were measured, all finite and at least 0. The figure is their mean.
    pub(super) samples: Vec<f64>,
}

/// A measurement that can be saved and compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedResult<T = Value> {
    /// The version of the form.
    pub(super) format: u32,
    pub(super) kind: BenchKind,
    /// The version of the program that measured.
    pub(super) program: String,
    /// When the measurement ended, in RFC 3339.
    pub(super) measured_at: String,
    pub(super) machine: MachineDescription,
    /// The command's arguments, without keys.
    pub(super) arguments: Vec<String>,
    /// What two results must have in common to be compared, such as the model's name.
    pub(super) conditions: BTreeMap<String, String>,
    /// What may differ, and is reported if it does, such as the digest of the model's weights.
    pub(super) properties: BTreeMap<String, String>,
    pub(super) series: Vec<MeasuredSeries>,
    /// All figures of this kind of measurement.
    pub(super) result: T,
}

impl<T: Serialize> SavedResult<T> {
    /// Returns a result of this program on this machine, measured now.
    pub(super) fn new(kind: BenchKind, series: Vec<MeasuredSeries>, result: T) -> SavedResult<T> {
        SavedResult {
            format: FORMAT,
            kind,
            program: OWN_VERSION.to_owned(),
            measured_at: units::format_time(SystemClock.now_ms()),
            machine: MachineDescription::read(),
            arguments: arguments_without_keys(std::env::args().skip(1)),
            conditions: BTreeMap::new(),
            properties: BTreeMap::new(),
            series,
            result,
        }
    }

    /// Adds a condition that two results must have in common.
    pub(super) fn with_condition(mut self, name: &str, value: impl ToString) -> SavedResult<T> {
        self.conditions.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds a property that may differ.
    pub(super) fn with_property(mut self, name: &str, value: impl ToString) -> SavedResult<T> {
        self.properties.insert(name.to_owned(), value.to_string());
        self
    }

    /// Writes the result as JSON, in place of an existing file once it is complete.
    ///
    /// # Errors
    /// Returns `write` if the file cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<(), CliError> {
        let text = serde_json::to_vec_pretty(self).expect("results have text as keys");
        let part = crate::atomic_file::partial_path(path);
        std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path)).map_err(|error| {
            // The partial file may not exist.
            let _ = std::fs::remove_file(&part);
            CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
                .with_hint("name a file in a directory that you can write: --save FILE")
        })
    }
}

impl SavedResult {
    /// Reads a saved result.
    ///
    /// # Errors
    /// Returns `no_file` if the file does not exist, and `invalid` if it is no result that this version reads.
    pub(super) fn load(path: &Path) -> Result<SavedResult, CliError> {
        let refuse = |reason: String| {
            CliError::invalid(format!("{}: {reason}", path.display())).with_hint(
                "save a result with `saggar bench serve --save FILE`; `bench train` and `bench infer` have --save too",
            )
        };
        let no_file =
            |error: std::io::Error| CliError::new(exit::NOT_FOUND, "no_file", format!("{}: {error}", path.display()));
        let length = std::fs::metadata(path).map_err(no_file)?.len();
        if length > RESULT_BYTES_MAX {
            return Err(refuse(format!("{length} bytes are more than a saved result has")));
        }
        let text = std::fs::read(path).map_err(no_file)?;
        let head: FormatHead =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("no saved result: {error}")))?;
        if head.format != FORMAT {
            return Err(refuse(format!("it has format {}, and this version reads {FORMAT}", head.format)));
        }
        let result: SavedResult =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("no saved result: {error}")))?;
        let is_figure = |sample: &f64| sample.is_finite() && *sample >= 0.0;
        match result.series.iter().find(|series| !series.samples.iter().all(is_figure)) {
            Some(series) => Err(refuse(format!("{} has a sample that is no measured figure", series.name))),
            None => Ok(result),
        }
    }
}

#[derive(Deserialize)]
struct FormatHead {
    format: u32,
}

/// Returns the arguments with `-` in place of API keys.
fn arguments_without_keys(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_key = false;
    let redact = |argument: String| {
        let was_key = std::mem::replace(&mut is_key, argument == "--key");
        match (was_key, argument.starts_with("--key=")) {
            (true, _) => "-".to_owned(),
            (false, true) => "--key=-".to_owned(),
            (false, false) => argument,
        }
    };
    arguments.map(redact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_saved() {
        let words = ["bench", "--key", "secret", "serve", "--key=secret", "--model", "--key-like"];
        let redacted = arguments_without_keys(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(redacted, ["bench", "--key", "-", "serve", "--key=-", "--model", "--key-like"]);
    }

    #[test]
    fn a_saved_result_is_read_again_and_anything_else_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a.json");
        let series = MeasuredSeries {
            group: "cpu".to_owned(),
            name: "steps/s".to_owned(),
            better: BetterDirection::Higher,
            samples: vec![1.0, 2.0],
        };
        let result = SavedResult::new(BenchKind::Train, vec![series], Value::Null).with_condition("plugin", "lenet");
        result.save(&file).unwrap();
        assert_eq!(SavedResult::load(&file).unwrap(), result);
        for (text, reason) in [
            ("{", "no saved result"),
            ("{\"format\": 99}", "it has format 99, and this version reads 1"),
            ("{\"format\": 1, \"kind\": \"cook\"}", "no saved result"),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = SavedResult::load(&file).unwrap_err();
            assert!(failure.exit_code == exit::INVALID && failure.message.contains(reason), "{failure}");
        }
        let mut wrong = result;
        wrong.series[0].samples[0] = -1.0;
        wrong.save(&file).unwrap();
        assert!(SavedResult::load(&file).unwrap_err().message.contains("steps/s"));
        assert_eq!(SavedResult::load(&place.path().join("none")).unwrap_err().exit_code, exit::NOT_FOUND);
        assert_eq!(wrong.save(&place.path().join("no/such/dir")).unwrap_err().code, "write");
    }
}
