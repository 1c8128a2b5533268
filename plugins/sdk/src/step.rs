//! Steps: functions from typed inputs to typed outputs, which a job runs.

use std::collections::BTreeMap;

use crate::bindings::{step as raw, tensors};
use crate::call_site::AtCallSite;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::logging::report_panics;

/// The inputs of a step, by the names that the plugin declares.
///
/// The host gives every declared input a value of its type. A function of another type than the declared one is an
/// error that names the input.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(inputs: &StepInputs) -> Result<()> {
/// let table = inputs.dataset("table")?;
/// let share = inputs.number("share")?;
/// info(&format!("{} items, of which {share} are used", table.count(None)?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StepInputs(BTreeMap<String, raw::StepValue>);

impl StepInputs {
    /// Returns the value of an input and its conversion, or an error that names both types.
    #[track_caller]
    fn get<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        convert: impl Fn(&'a raw::StepValue) -> Option<T>,
    ) -> Result<T> {
        let Some(value) = self.0.get(name) else {
            let known = self.0.keys().cloned().collect();
            return Err(Error::NoSuch { what: "input", name: name.to_owned(), known }).at_caller();
        };
        let wrong = || Error::Parameter {
            name: name.to_owned(),
            expected: expected.to_owned(),
            given: format!("a value of type {}", type_name(value)),
        };
        convert(value).ok_or_else(wrong).at_caller()
    }

    /// Returns an input of type `integer`.
    ///
    /// # Errors
    /// Returns `NoSuch` if there is no such input, and `Parameter` if it has another type.
    #[track_caller]
    pub fn integer(&self, name: &str) -> Result<i64> {
        self.get(name, "an integer", |value| match value {
            raw::StepValue::Integer(number) => Some(*number),
            _ => None,
        })
    }

    /// Returns an input of type `number`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn number(&self, name: &str) -> Result<f64> {
        self.get(name, "a number", |value| match value {
            raw::StepValue::Number(number) => Some(*number),
            raw::StepValue::Integer(number) => Some(*number as f64),
            _ => None,
        })
    }

    /// Returns an input of type `text`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn text(&self, name: &str) -> Result<&str> {
        self.get(name, "a text", |value| match value {
            raw::StepValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns an input of type `boolean`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn boolean(&self, name: &str) -> Result<bool> {
        self.get(name, "true or false", |value| match value {
            raw::StepValue::Boolean(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Returns the content of an input of type `file`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn file(&self, name: &str) -> Result<&[u8]> {
        self.get(name, "a file", |value| match value {
            raw::StepValue::File(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Opens an input of type `dataset`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`], and `Host` if the dataset cannot be opened.
    #[track_caller]
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let mount = self.get(name, "a dataset", |value| match value {
            raw::StepValue::Dataset(mount) => Some(mount.as_str()),
            _ => None,
        })?;
        Dataset::open(mount)
    }

    /// Returns an input of type `model`: its name and version, for [`Job::open_model`].
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn model(&self, name: &str) -> Result<(&str, u64)> {
        self.get(name, "a version of a model", |value| match value {
            raw::StepValue::Model(text) => {
                let (model, version) = text.rsplit_once('@')?;
                Some((model, version.parse().ok()?))
            }
            _ => None,
        })
    }

    /// Returns an input of type `checkpoint`, such as `job:digits-7/checkpoint@1200`.
    ///
    /// # Errors
    /// As [`StepInputs::integer`].
    #[track_caller]
    pub fn checkpoint(&self, name: &str) -> Result<&str> {
        self.get(name, "a checkpoint", |value| match value {
            raw::StepValue::Checkpoint(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Returns the name of a value's type in declarations.
fn type_name(value: &raw::StepValue) -> &'static str {
    match value {
        raw::StepValue::Integer(_) => "integer",
        raw::StepValue::Number(_) => "number",
        raw::StepValue::Text(_) => "text",
        raw::StepValue::Boolean(_) => "boolean",
        raw::StepValue::File(_) => "file",
        raw::StepValue::Dataset(_) => "dataset",
        raw::StepValue::Model(_) => "model",
        raw::StepValue::Checkpoint(_) => "checkpoint",
    }
}

/// The outputs of a step. The host accepts exactly those that the plugin declares, with the declared types.
///
/// ```no_run
/// # use saggar_plugin::*;
/// fn summarise(job: &Job, inputs: &StepInputs) -> Result<StepOutputs> {
///     let items = inputs.dataset("table")?.count(None)?;
///     job.write_output("rows/part-0.csv", b"x,y\n1,2\n")?;
///     Ok(StepOutputs::new()
///         .integer("items", items as i64)
///         .number("share", 0.5)
///         .file("report", b"all is well\n")
///         .dataset("rows", "rows"))
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct StepOutputs(Vec<raw::NamedValue>);

impl StepOutputs {
    /// Returns no outputs.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, name: &str, value: raw::StepValue) -> Self {
        self.0.push(raw::NamedValue { name: name.to_owned(), value });
        self
    }

    /// Adds an output of type `integer`, which is also accepted for one of type `number`.
    #[must_use]
    pub fn integer(self, name: &str, value: i64) -> Self {
        self.with(name, raw::StepValue::Integer(value))
    }

    /// Adds an output of type `number`. The host refuses infinities and NaN.
    #[must_use]
    pub fn number(self, name: &str, value: f64) -> Self {
        self.with(name, raw::StepValue::Number(value))
    }

    /// Adds an output of type `text`, of at most 2 KiB. Longer texts are files.
    #[must_use]
    pub fn text(self, name: &str, value: &str) -> Self {
        self.with(name, raw::StepValue::Text(value.to_owned()))
    }

    /// Adds an output of type `boolean`.
    #[must_use]
    pub fn boolean(self, name: &str, value: bool) -> Self {
        self.with(name, raw::StepValue::Boolean(value))
    }

    /// Adds an output of type `file`, which the host stores with the job under the output's name.
    #[must_use]
    pub fn file(self, name: &str, content: &[u8]) -> Self {
        self.with(name, raw::StepValue::File(content.to_vec()))
    }

    /// Adds an output of type `dataset`: the path of a file or folder that the step wrote with [`Job::write_output`].
    #[must_use]
    pub fn dataset(self, name: &str, path: &str) -> Self {
        self.with(name, raw::StepValue::Dataset(path.to_owned()))
    }

    /// Adds an output of type `model`: a published version.
    #[must_use]
    pub fn model(self, name: &str, model: &str, version: u64) -> Self {
        self.with(name, raw::StepValue::Model(format!("{model}@{version}")))
    }

    /// Adds an output of type `checkpoint`, such as `job:digits-7/checkpoint@1200`.
    #[must_use]
    pub fn checkpoint(self, name: &str, checkpoint: &str) -> Self {
        self.with(name, raw::StepValue::Checkpoint(checkpoint.to_owned()))
    }
}

/// Runs the exported step. Called by [`export!`](crate::export).
///
/// # Errors
/// Returns the error of `run`. `Stopped` is not an error: the host ignores the outputs of a job that is stopping.
pub fn run_step(
    run: fn(&Job, &StepInputs) -> Result<StepOutputs>,
    inputs: Vec<raw::NamedValue>,
) -> std::result::Result<Vec<raw::NamedValue>, tensors::Error> {
    report_panics();
    let inputs = StepInputs(inputs.into_iter().map(|input| (input.name, input.value)).collect());
    match Job::open().and_then(|job| run(&job, &inputs)) {
        Ok(outputs) => Ok(outputs.0),
        Err(Error::Stopped) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> StepInputs {
        let outputs = StepOutputs::new()
            .integer("count", 3)
            .number("share", 0.5)
            .text("name", "a")
            .boolean("is-good", true)
            .file("report", b"bytes")
            .model("model", "digits", 7)
            .checkpoint("best", "job:a-1/checkpoint@2");
        StepInputs(outputs.0.into_iter().map(|it| (it.name, it.value)).collect())
    }

    #[test]
    fn inputs_are_read_by_type() {
        let inputs = inputs();
        assert_eq!(inputs.integer("count").unwrap(), 3);
        assert_eq!((inputs.number("share").unwrap(), inputs.number("count").unwrap()), (0.5, 3.0));
        assert_eq!(inputs.text("name").unwrap(), "a");
        assert!(inputs.boolean("is-good").unwrap());
        assert_eq!(inputs.file("report").unwrap(), b"bytes");
        assert_eq!(inputs.model("model").unwrap(), ("digits", 7));
        assert_eq!(inputs.checkpoint("best").unwrap(), "job:a-1/checkpoint@2");
    }

    #[test]
    fn an_input_of_another_name_or_type_is_an_error_that_names_it() {
        let inputs = inputs();
        let error = inputs.number("shares").unwrap_err();
        assert!(error.to_string().starts_with("no input `shares`; available: best, count"), "{error}");
        let error = inputs.number("name").unwrap_err().to_string();
        assert!(error.starts_with("parameter `name` must be a number, not a value of type text"), "{error}");
        assert!(inputs.dataset("share").is_err() && inputs.model("name").is_err());
    }
}
