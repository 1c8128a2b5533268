//! Steps: one call of a plugin's step inside a job. The outputs are checked against the plugin's declarations, so a
//! caller gets every declared output, with its type, and nothing else.

mod outputs;

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, Meter};
use saggar_project::{ParameterDeclaration, ParameterType};
use saggar_store::dataset::ColumnarDataset;
use serde_json::Value;

use crate::bindings::step::{NamedValue, StepValue as WitValue};
use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::job_context::JobContext;
use crate::train::{JobRun, TrainLimits};

/// A value of a step's input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum StepValue {
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// The content of a file.
    File(Vec<u8>),
    /// A dataset: the mount point of an input, the path of an output of the job.
    Dataset(String),
    /// A version of a model, `digits@3`.
    Model(String),
    /// A checkpoint, `job:digits-7/checkpoint@1200`.
    Checkpoint(String),
}

impl StepValue {
    /// Returns the value's type.
    pub fn kind(&self) -> ParameterType {
        match self {
            StepValue::Integer(_) => ParameterType::Integer,
            StepValue::Number(_) => ParameterType::Number,
            StepValue::Text(_) => ParameterType::Text,
            StepValue::Boolean(_) => ParameterType::Boolean,
            StepValue::File(_) => ParameterType::File,
            StepValue::Dataset(_) => ParameterType::Dataset,
            StepValue::Model(_) => ParameterType::Model,
            StepValue::Checkpoint(_) => ParameterType::Checkpoint,
        }
    }

    /// Returns the value of a type other than `File` from its JSON form, or `None` if it is not of that type.
    pub fn from_json(kind: ParameterType, value: &Value) -> Option<StepValue> {
        let text = || value.as_str().map(str::to_owned);
        match kind {
            // A client can write a whole number as 3.0.
            ParameterType::Integer => {
                let whole = |number: &f64| number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER;
                let integer = value.as_i64().or_else(|| value.as_f64().filter(whole).map(|number| number as i64));
                integer.map(StepValue::Integer)
            }
            ParameterType::Number => value.as_f64().map(StepValue::Number),
            ParameterType::Text => text().map(StepValue::Text),
            ParameterType::Boolean => value.as_bool().map(StepValue::Boolean),
            ParameterType::File => None,
            ParameterType::Dataset => text().map(StepValue::Dataset),
            ParameterType::Model => text().map(StepValue::Model),
            ParameterType::Checkpoint => text().map(StepValue::Checkpoint),
        }
    }

    /// Returns the JSON form; null for a file, and for a number that is not finite.
    pub fn to_json(&self) -> Value {
        match self {
            StepValue::Integer(number) => (*number).into(),
            StepValue::Number(number) => (*number).into(),
            StepValue::Boolean(flag) => (*flag).into(),
            StepValue::Text(text) | StepValue::Dataset(text) | StepValue::Model(text) | StepValue::Checkpoint(text) => {
                text.as_str().into()
            }
            StepValue::File(_) => Value::Null,
        }
    }
}

/// The largest integer up to which a float represents every integer.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

impl From<StepValue> for WitValue {
    fn from(value: StepValue) -> WitValue {
        match value {
            StepValue::Integer(number) => WitValue::Integer(number),
            StepValue::Number(number) => WitValue::Number(number),
            StepValue::Text(text) => WitValue::Text(text),
            StepValue::Boolean(flag) => WitValue::Boolean(flag),
            StepValue::File(bytes) => WitValue::File(bytes),
            StepValue::Dataset(mount) => WitValue::Dataset(mount),
            StepValue::Model(version) => WitValue::Model(version),
            StepValue::Checkpoint(checkpoint) => WitValue::Checkpoint(checkpoint),
        }
    }
}

impl From<WitValue> for StepValue {
    fn from(value: WitValue) -> StepValue {
        match value {
            WitValue::Integer(number) => StepValue::Integer(number),
            WitValue::Number(number) => StepValue::Number(number),
            WitValue::Text(text) => StepValue::Text(text),
            WitValue::Boolean(flag) => StepValue::Boolean(flag),
            WitValue::File(bytes) => StepValue::File(bytes),
            WitValue::Dataset(path) => StepValue::Dataset(path),
            WitValue::Model(version) => StepValue::Model(version),
            WitValue::Checkpoint(checkpoint) => StepValue::Checkpoint(checkpoint),
        }
    }
}

/// A step to run.
pub struct StepCall {
    /// The device that computes.
    pub device: Arc<dyn Backend>,
    /// The meter charged with the device memory.
    pub meter: Meter,
    /// The datasets for `dataset.open` by mount point.
    pub datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    /// The job's functions.
    pub context: Box<dyn JobContext>,
    /// The limits, which are those of a training.
    pub limits: TrainLimits,
    /// The value of every input.
    pub inputs: BTreeMap<String, StepValue>,
    /// The declared outputs.
    pub outputs: BTreeMap<String, ParameterDeclaration>,
}

/// The successful outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// The value of every declared output.
    Finished(BTreeMap<String, StepValue>),
    /// The plugin was asked to stop at a step boundary; its last state is in a checkpoint.
    Stopped,
}

/// Runs a plugin's step to its end. Blocks; no async runtime is needed on this thread.
///
/// # Errors
/// `MissingExport` if the plugin has no step; `StepOutput` if an output does not match its declaration, is missing or
/// is not declared; the errors of [`train`](crate::train()).
pub fn run_step(host: &PluginEngine, plugin: &CompiledPlugin, step: StepCall) -> Result<StepOutcome, PluginError> {
    let StepCall { device, meter, datasets, context, limits, inputs, outputs } = step;
    let export = plugin.step_export()?;
    let inputs: Vec<NamedValue> =
        inputs.into_iter().map(|(name, value)| NamedValue { name, value: value.into() }).collect();
    let job = JobRun { device, meter, datasets, context, limits };
    let returned = job.run(host, plugin, "run", |store, instance, clock| {
        let guest = export.load(&mut *store, instance).map_err(|error| store.data_mut().trap_error("start", &error))?;
        store.data_mut().begin_call(clock);
        Ok(guest.call_run(store, &inputs))
    })?;
    match returned {
        None => Ok(StepOutcome::Stopped),
        Some(returned) => {
            let returned = returned.into_iter().map(|it| (it.name, it.value.into())).collect();
            Ok(StepOutcome::Finished(outputs::check_outputs(&outputs, returned)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_keep_their_type_through_json() {
        let cases = [
            (ParameterType::Integer, json!(-3), StepValue::Integer(-3)),
            (ParameterType::Number, json!(0.25), StepValue::Number(0.25)),
            (ParameterType::Text, json!("a"), StepValue::Text("a".to_owned())),
            (ParameterType::Boolean, json!(true), StepValue::Boolean(true)),
            (ParameterType::Dataset, json!("/table"), StepValue::Dataset("/table".to_owned())),
            (ParameterType::Model, json!("digits@3"), StepValue::Model("digits@3".to_owned())),
            (
                ParameterType::Checkpoint,
                json!("job:a-1/checkpoint@2"),
                StepValue::Checkpoint("job:a-1/checkpoint@2".to_owned()),
            ),
        ];
        for (kind, text, value) in cases {
            assert_eq!(StepValue::from_json(kind, &text), Some(value.clone()), "{text}");
            assert_eq!((value.kind(), value.to_json()), (kind, text));
        }
        assert_eq!(StepValue::from_json(ParameterType::Integer, &json!(3.0)), Some(StepValue::Integer(3)));
        for (kind, wrong) in [
            (ParameterType::Integer, json!(1.5)),
            (ParameterType::Integer, json!(1e300)),
            (ParameterType::Text, json!(1)),
            (ParameterType::File, json!("x")),
        ] {
            assert_eq!(StepValue::from_json(kind, &wrong), None, "{wrong}");
        }
        assert_eq!(StepValue::Number(f64::NAN).to_json(), Value::Null);
    }
}
