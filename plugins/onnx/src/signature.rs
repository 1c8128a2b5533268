//! The signatures of the standard operators: their operands, results and attributes in each version of the operator
//! set.
//!
//! A rule reads only the attributes that it knows. Without this check, a node with another attribute would be built as
//! if the attribute were absent, and the model would return wrong numbers.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::call::OperatorCall;
use crate::error::{Error, Result};
use crate::proto::AttributeProto;

/// The newest version of the standard operator set that [`TABLE`] and the rules support.
pub const OPSET_MAX: i64 = 28;

/// The table, with one line for each version that changed an operator. `tests/onnx/signatures.py` documents the format.
const TABLE: &str = include_str!("ops/signatures.txt");

/// The table's letters for attribute kinds, in the order of `AttributeProto.type`, from 1.
const KINDS: &str = "fistgFISTGpPyY";

/// The operands, results and attributes of an operator from one version of the operator set on.
#[derive(Debug, Clone)]
struct OperatorSignature {
    since: i64,
    /// The maximum number of operands; `None` for any number.
    inputs_max: Option<usize>,
    /// The maximum number of results; `None` for any number.
    outputs_max: Option<usize>,
    attributes: Vec<AttributeSignature>,
}

#[derive(Debug, Clone)]
struct AttributeSignature {
    name: &'static str,
    kind: char,
    required: bool,
}

static SIGNATURES: LazyLock<HashMap<&'static str, Vec<OperatorSignature>>> = LazyLock::new(|| {
    let mut signatures: HashMap<&str, Vec<OperatorSignature>> = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(since), Some(inputs), Some(outputs)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let signature = OperatorSignature {
            since: since.parse().unwrap_or(i64::MAX),
            inputs_max: inputs.parse().ok(),
            outputs_max: outputs.parse().ok(),
            attributes: words.filter_map(parse_attribute).collect(),
        };
        signatures.entry(name).or_default().push(signature);
    }
    signatures
});

/// Parses an attribute of the table: `name:k`, or `name:k!` if it is required.
fn parse_attribute(word: &'static str) -> Option<AttributeSignature> {
    let (name, kind) = word.split_once(':')?;
    Some(AttributeSignature { name, kind: kind.chars().next()?, required: kind.ends_with('!') })
}

/// Checks a node of the standard operator set before its rule builds it: the rule supports the version of the operator
/// set, and the operator has the node's operands, results and attributes in that version.
///
/// Operators that are not in the table have no rule either. They are left to the caller.
///
/// # Errors
/// Returns `Unsupported` for a newer version; `Invalid`, naming the attribute and those that the operator has.
pub fn check(call: &OperatorCall) -> Result<()> {
    if call.opset > OPSET_MAX {
        return Err(Error::unsupported(format!(
            "operator {} of version {} of ai.onnx; versions up to {OPSET_MAX} are known: export the model with \
             opset_version={OPSET_MAX} or less",
            call.op, call.opset
        )));
    }
    let Some(versions) = SIGNATURES.get(call.op) else { return Ok(()) };
    let Some(signature) = versions.iter().rev().find(|signature| signature.since <= call.opset) else {
        let first = versions.first().map_or(OPSET_MAX, |signature| signature.since);
        let what = format!("{} exists from version {first} of ai.onnx on, and the model names {}", call.op, call.opset);
        return Err(Error::invalid(what));
    };
    let inputs = call.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let outputs = call.wanted.iter().rposition(|&wanted| wanted).map_or(0, |last| last + 1);
    for (what, given, most) in [("operands", inputs, signature.inputs_max), ("results", outputs, signature.outputs_max)]
    {
        if let Some(most) = most.filter(|&most| given > most) {
            let version = call.opset;
            let what = format!("{} of version {version} has at most {most} {what}, not {given}", call.op);
            return Err(Error::invalid(what));
        }
    }
    for attribute in &call.attributes {
        signature.check_attribute(call, attribute)?;
    }
    match signature.attributes.iter().find(|known| known.required && call.attribute(known.name).is_none()) {
        Some(missing) => Err(Error::invalid(format!("attribute `{}` of {} is missing", missing.name, call.op))),
        None => Ok(()),
    }
}

/// Checks that a function of the file declares the attributes that a node calls it with.
///
/// # Errors
/// Returns `Invalid`, naming the attribute.
pub fn check_function<'f>(call: &OperatorCall, mut declared: impl Iterator<Item = &'f str> + Clone) -> Result<()> {
    match call.attributes.iter().find(|given| !declared.clone().any(|name| name == given.name)) {
        Some(unknown) => Err(unknown_attribute(call, &unknown.name, declared.by_ref())),
        None => Ok(()),
    }
}

impl OperatorSignature {
    fn check_attribute(&self, call: &OperatorCall, given: &AttributeProto) -> Result<()> {
        let Some(known) = self.attributes.iter().find(|known| known.name == given.name) else {
            return Err(unknown_attribute(call, &given.name, self.attributes.iter().map(|known| known.name)));
        };
        // Old files omit the kind.
        let kind = usize::try_from(given.kind - 1).ok().and_then(|at| KINDS.chars().nth(at));
        match kind.filter(|&kind| kind != known.kind) {
            None => Ok(()),
            Some(kind) => Err(Error::invalid(format!(
                "attribute `{}` of {} must be {}, not {}",
                given.name,
                call.op,
                kind_name(known.kind),
                kind_name(kind)
            ))),
        }
    }
}

fn unknown_attribute<'f>(call: &OperatorCall, name: &str, known: impl Iterator<Item = &'f str>) -> Error {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let version = call.opset;
    Error::invalid(format!("attribute `{name}` is not one of {} in version {version}, which has {has}", call.op))
}

/// Returns the name of an attribute kind from the table's letter.
fn kind_name(kind: char) -> &'static str {
    match kind {
        'f' => "a float",
        'i' => "an integer",
        's' => "a text",
        't' => "a tensor",
        'g' => "a graph",
        'F' => "floats",
        'I' => "integers",
        'S' => "texts",
        'T' => "tensors",
        'G' => "graphs",
        'p' | 'P' => "sparse tensors",
        _ => "a type",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ops;

    /// The operators that the graph builder handles itself.
    const BUILT_BY_WALK: [&str; 4] = ["Constant", "If", "Loop", "Scan"];

    /// Attributes that no rule reads, and the reason why their value changes nothing. `*` is every operator.
    const NOT_ASKED_FOR: &[(&str, &str)] = &[
        ("*.broadcast", "shapes that need no broadcast are equal; others follow from `axis` or from their last axes"),
        ("*.output_sequence", "the used results decide it"),
        ("BatchNormalization.is_test", "one result means test mode, and more results are refused before version 14"),
        ("Cast.round_mode", "only for 8-bit floats, which are refused"),
        ("Cast.saturate", "only for 8-bit floats, which are refused"),
        ("CastLike.round_mode", "only for 8-bit floats, which are refused"),
        ("CastLike.saturate", "only for 8-bit floats, which are refused"),
        ("Constant.sparse_value", "a constant without one of the other values is refused with its attribute's name"),
        ("Constant.value_string", "a constant without one of the other values is refused with its attribute's name"),
        ("Constant.value_strings", "a constant without one of the other values is refused with its attribute's name"),
        ("Dropout.is_test", "nothing is dropped in inference"),
        ("Dropout.ratio", "nothing is dropped in inference"),
        ("Dropout.seed", "nothing is dropped in inference"),
        ("QuantizeLinear.saturate", "only for 8-bit floats, which are refused"),
        ("Range.stash_type", "`float16` is computed in single precision, other types in their own precision"),
        ("Scan.directions", "only in version 8, which is refused"),
        ("TopK.sorted", "any order is allowed, including the sorted one"),
    ];

    /// Returns the source text of the file with an operator's rule and of the files whose functions it calls.
    fn rule_source(op: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        if BUILT_BY_WALK.contains(&op) {
            return read("build.rs") + &read("ops/source.rs");
        }
        let table = read("ops.rs");
        let entry = table.split("),\n").find(|entry| {
            let names = entry.split('"').nth(1).unwrap_or_default();
            names.split_whitespace().any(|name| name == op)
        });
        let module = entry.and_then(|entry| entry.rsplit("::").nth(1)?.split_whitespace().last());
        let own = read(&format!("ops/{}.rs", module.expect("the entry names a module")));
        let called = own.split("super::").skip(1).filter_map(|rest| rest.split("::").next());
        let called: String = called.map(|module| read(&format!("ops/{module}.rs"))).collect();
        own + &called
    }

    #[test]
    fn every_operator_with_a_rule_has_a_signature() {
        let without: Vec<&str> =
            ops::operator_names().chain(BUILT_BY_WALK).filter(|op| !SIGNATURES.contains_key(op)).collect();
        assert_eq!(without, Vec::<&str>::new());
        let unused: Vec<&&str> =
            SIGNATURES.keys().filter(|op| ops::rule_for(op).is_none() && !BUILT_BY_WALK.contains(op)).collect();
        assert_eq!(unused, Vec::<&&str>::new());
    }

    #[test]
    fn every_attribute_is_asked_for_or_known_to_have_no_effect() {
        let mut ignored = Vec::new();
        for (op, versions) in SIGNATURES.iter() {
            let source = rule_source(op);
            for attribute in versions.iter().flat_map(|version| &version.attributes) {
                let name = format!("{op}.{}", attribute.name);
                let asked = source.contains(&format!("\"{}\"", attribute.name));
                let any = format!("*.{}", attribute.name);
                if !asked && !NOT_ASKED_FOR.iter().any(|(known, _)| *known == name || *known == any) {
                    ignored.push(name);
                }
            }
        }
        ignored.sort();
        ignored.dedup();
        assert_eq!(ignored, Vec::<String>::new());
    }
}
