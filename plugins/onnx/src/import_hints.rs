//! Hints for a model that cannot be imported as it is: the options that make the import possible, and the input that a
//! value follows from if the value must be known at import.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use crate::error::{Error, OnnxErrorKind, ValueSource};
use crate::plan::{self, InputDimension, InputShape, InputShapes};
use crate::proto::{GraphProto, NodeProto};

/// The maximum number of elements of an input that a user would write down as a constant.
const CONSTANT_ELEMENTS_MAX: usize = 64;
/// The sizes tried for all open dimensions if the sizes suggested by the dimensions' names do not build.
const SIZES_TRIED: [usize; 4] = [64, 224, 32, 1];
/// The usual height and width of an image.
const DEFAULT_IMAGE_SIDE: usize = 224;
/// The usual length of a sequence.
const DEFAULT_SEQUENCE_LENGTH: usize = 128;

/// Returns the error of a model with open dimensions other than the batch. The error names all of them, and options
/// that `builds` can build the model with. `builds` is called with the inputs' shapes and, if the model can only
/// compute single items, with batch sizes. `own` holds the shapes of the model, `shapes` those after applying the
/// options.
pub(crate) fn open_shapes_error(
    own: &InputShapes,
    shapes: &InputShapes,
    builds: &mut dyn FnMut(&InputShapes, Option<Vec<u32>>) -> bool,
) -> Error {
    let batched = usize::from(shapes.has_open_batch());
    let is_open = |input: &&InputShape| input.dims[batched..].iter().any(|dim| matches!(dim, InputDimension::Open(_)));
    let described = shapes.0.iter().filter(is_open).map(|input| {
        let dims: Vec<String> = input.dims.iter().map(format_dimension).collect();
        format!("input `{}` is [{}]", input.name, dims.join(", "))
    });
    let inputs = described.collect::<Vec<_>>().join(", ");
    // Options already given are repeated, so that the example is complete.
    let is_written = |at: usize| is_open(&&shapes.0[at]) || shapes.0[at] != own.0[at];
    let given = named_dimension_sizes(own, shapes);
    let size = |input: &InputShape, axis: usize, name: &str| {
        given.get(name).copied().unwrap_or_else(|| suggest_size(input, axis, name))
    };
    let mut guesses = vec![with_sizes(shapes, batched, &size)];
    for size in SIZES_TRIED {
        let guess = with_sizes(shapes, batched, &|_, _, _| size);
        if !guesses.contains(&guess) {
            guesses.push(guess);
        }
    }
    let example = guesses.iter().find_map(|guess| {
        let is_single = !builds(guess, None);
        if is_single && (batched == 0 || !builds(guess, Some(vec![1]))) {
            return None;
        }
        let written = guess.0.iter().enumerate().filter(|(at, _)| is_written(*at));
        Some(format_options(written.map(|(_, guess)| guess), is_single))
    });
    Error::from(OnnxErrorKind::OpenShapes { inputs, example }).at(|| "option `shapes`".to_owned())
}

/// Returns the sizes that options gave to named dimensions. Other dimensions of the same name have the same size.
fn named_dimension_sizes<'a>(own: &'a InputShapes, shapes: &InputShapes) -> HashMap<&'a str, usize> {
    let dims = own.0.iter().zip(&shapes.0).flat_map(|(own, given)| own.dims.iter().zip(&given.dims));
    let size = |(own, given): (&'a InputDimension, &InputDimension)| match (own, given) {
        (InputDimension::Open(name), InputDimension::Known(size)) if !name.is_empty() => Some((name.as_str(), *size)),
        _ => None,
    };
    dims.filter_map(size).collect()
}

fn format_dimension(dim: &InputDimension) -> String {
    match dim {
        InputDimension::Known(size) => size.to_string(),
        InputDimension::Open(name) if name.is_empty() => "?".to_owned(),
        InputDimension::Open(name) => name.clone(),
    }
}

/// Returns the shapes with sizes for all open dimensions except the batch.
fn with_sizes(shapes: &InputShapes, batched: usize, size: &dyn Fn(&InputShape, usize, &str) -> usize) -> InputShapes {
    let input = |input: &InputShape| {
        let dim = |(axis, dim): (usize, &InputDimension)| match dim {
            InputDimension::Open(name) if axis >= batched => InputDimension::Known(size(input, axis, name)),
            dim => dim.clone(),
        };
        InputShape { dims: input.dims.iter().enumerate().map(dim).collect(), ..input.clone() }
    };
    InputShapes(shapes.0.iter().map(input).collect())
}

/// Returns a usual size for a dimension with this name or position.
fn suggest_size(input: &InputShape, axis: usize, name: &str) -> usize {
    let name = name.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let is_side = input.dims.len() == 4 && axis >= 2;
    if has(&["height", "width"]) || ["h", "w"].contains(&name.as_str()) || is_side {
        // Most images are square.
        match input.dims[2.min(input.dims.len())..].iter().find(|dim| matches!(dim, InputDimension::Known(_))) {
            Some(InputDimension::Known(side)) if is_side => *side,
            _ => DEFAULT_IMAGE_SIDE,
        }
    } else if has(&["batch"]) || axis == 0 {
        1
    } else if has(&["channel"]) {
        3
    } else {
        DEFAULT_SEQUENCE_LENGTH
    }
}

/// Formats the options as command-line flags and as JSON.
fn format_options<'a>(inputs: impl Iterator<Item = &'a InputShape>, is_single: bool) -> String {
    let (mut flags, mut members) = (Vec::new(), Vec::new());
    for input in inputs {
        let dims = |open: &str| -> Vec<String> {
            let dim = |dim: &InputDimension| {
                if let InputDimension::Known(size) = dim { size.to_string() } else { open.to_owned() }
            };
            input.dims.iter().map(dim).collect()
        };
        flags.push(format!("--shape {}={}", input.name, dims("?").join("x")));
        members.push(format!("\"{}\": [{}]", input.name, dims("null").join(", ")));
    }
    let mut json = format!("\"shapes\": {{{}}}", members.join(", "));
    if is_single {
        flags.push("--batch 1".to_owned());
        write!(json, ", \"batch\": [1]").expect("a string takes whatever is written");
    }
    format!("{} (as JSON: {{{json}}})", flags.join(" "))
}

/// Adds the source of the unknown value to the error, if the error has an unknown value and the source can be traced.
pub(crate) fn with_source(mut error: Error, graph: &GraphProto) -> Error {
    if let OnnxErrorKind::NotKnown { name, source, .. } = &mut error.fault {
        *source = trace_source(name, graph);
    }
    error
}

/// Traces a value back to the inputs of the graph.
fn trace_source(name: &str, graph: &GraphProto) -> ValueSource {
    let makers: HashMap<&str, &NodeProto> =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node))).collect();
    let inputs: HashMap<&str, bool> =
        graph.input.iter().map(|input| (input.name.as_str(), is_small_input(input))).collect();
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let mut left = vec![name];
    while let Some(name) = left.pop() {
        if !seen.insert(name) {
            continue;
        }
        if let Some((name, _)) = inputs.get_key_value(name) {
            found.insert(name);
        } else if let Some(node) = makers.get(name) {
            // The result of Shape is known whatever its operand is. The operands of branches and loops are not traced.
            if node.attribute.iter().any(|attribute| attribute.g.is_some()) {
                return ValueSource::Unknown;
            }
            if !["Shape", "Size"].contains(&node.op_type.as_str()) {
                left.extend(node.input.iter().map(String::as_str).filter(|input| !input.is_empty()));
            }
        }
    }
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let (settings, data): (Vec<&str>, Vec<&str>) = found.into_iter().partition(|name| inputs[name]);
    match (settings.is_empty(), data.is_empty()) {
        (true, true) => ValueSource::Unknown,
        (_, false) => ValueSource::Data(owned(data)),
        (false, true) => ValueSource::Settings(owned(settings)),
    }
}

/// Returns whether an input has so few elements that it can be a setting instead of data.
fn is_small_input(input: &crate::proto::ValueInfoProto) -> bool {
    let Ok((_, dims)) = plan::declared_type(input) else { return false };
    let dims = dims.unwrap_or_default().iter().map(|dim| dim.dim_value.and_then(|size| usize::try_from(size).ok()));
    let elements = dims.map(|size| size.unwrap_or(1)).try_fold(1_usize, usize::checked_mul);
    let rank = plan::declared_type(input).ok().and_then(|(_, dims)| dims).map_or(0, <[_]>::len);
    rank <= 1 && elements.is_some_and(|elements| elements <= CONSTANT_ELEMENTS_MAX)
}
