//! Exponential moving averages of the parameters.

use std::collections::BTreeMap;

use crate::bindings::tensors::DataType;
use crate::error::Result;
use crate::graph::Graph;
use crate::tensor::descriptor;
use crate::variables::{Variable, Variables};

/// Adds the update of the averages to `graph`, after the optimiser has assigned the parameters.
pub(super) fn update_averages(graph: &Graph, variables: &Variables, decay: f64) -> Result<()> {
    let counter = variables.training("average/step", descriptor(DataType::Int32, []))?;
    let step = graph.stored(&counter)?;
    graph.assign(&counter, &step.add_scalar(1.0)?)?;
    // The first step ignores the initial zeros, and the decay grows with the step so that early values have less
    // weight.
    let step = step.cast(DataType::Float32)?;
    let old_share = step.div(&step.add_scalar(9.0)?)?.clamp(None, Some(decay))?;
    let new = old_share.neg()?.add_scalar(1.0)?;
    for parameter in variables.parameters() {
        let mean = average_of(variables, &parameter)?;
        let value = match graph.assigned_value(&parameter) {
            Some(value) => value,
            None => graph.stored(&parameter)?,
        };
        graph.assign(&mean, &graph.stored(&mean)?.mul(&old_share)?.add(&value.mul(&new)?)?)?;
    }
    Ok(())
}

/// Returns the averages by parameter name.
pub(super) fn averages_by_parameter(variables: &Variables) -> Result<BTreeMap<String, Variable>> {
    let parameters = variables.parameters().into_iter();
    parameters.map(|parameter| Ok((parameter.name().to_owned(), average_of(variables, &parameter)?))).collect()
}

/// Copies the averages to the parameters.
pub(super) fn copy_to_parameters(variables: &Variables) -> Result<()> {
    for parameter in variables.parameters() {
        parameter.write(&average_of(variables, &parameter)?.read()?)?;
    }
    Ok(())
}

fn average_of(variables: &Variables, parameter: &Variable) -> Result<Variable> {
    variables.root().training(&format!("average/{}", parameter.name()), parameter.descriptor().clone())
}
