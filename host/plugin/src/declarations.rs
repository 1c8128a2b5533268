//! Declarations that a plugin makes without being run: the parameters of its training and the data it reads. They allow
//! refusing a job that cannot succeed when it is submitted.
//!
//! They are JSON in a custom section of the component. `saggar build` copies them from `[package.metadata.saggar]` of
//! the plugin's `Cargo.toml`. The parameters and data of a plugin without declarations are only checked when it runs.

use std::collections::BTreeMap;

use saggar_project::ParameterDeclaration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasmparser::{Parser, Payload};

use crate::error::PluginError;
use crate::limits::{DECLARATIONS_BYTES_MAX, PORT_NAME_BYTES_MAX, STEP_PORTS_MAX};

/// The name of the custom section.
const SECTION: &str = "saggar:declarations";

/// The declarations of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginDeclarations {
    /// Name of the plugin's package. `None` in plugins that were built before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Parameters by name. Undeclared parameters are checked by the plugin alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, ParameterDeclaration>,
    /// Fields that a dataset must have, by the mount point at which the plugin reads it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, Vec<String>>,
    /// Inputs of a step by name. The host gives an input without a value its default; one without a default is
    /// required.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, ParameterDeclaration>,
    /// Outputs of a step by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, ParameterDeclaration>,
}

impl PluginDeclarations {
    /// Returns whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.parameters.is_empty()
            && self.data.is_empty()
            && self.inputs.is_empty()
            && self.outputs.is_empty()
    }

    /// Reads the declarations of a component. Returns empty ones if it has no such section.
    ///
    /// # Errors
    /// `Malformed` if the bytes are not a component, or the section is invalid.
    pub fn from_component(wasm: &[u8]) -> Result<PluginDeclarations, PluginError> {
        let mut depth = 0_u32;
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload.map_err(|error| PluginError::Malformed { reason: error.to_string() })?;
            match payload {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                // Sections of nested modules and components do not count.
                Payload::CustomSection(section) if depth == 1 && section.name() == SECTION => {
                    return parse_declarations(section.data()).map_err(|reason| PluginError::Malformed { reason });
                }
                _ => {}
            }
        }
        Ok(PluginDeclarations::default())
    }

    /// Appends these declarations to a component, which must have none yet.
    pub fn append_to(&self, mut component: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return component;
        }
        let text = serde_json::to_vec(self).expect("declarations are plain data");
        let mut content = Vec::new();
        write_leb128(SECTION.len(), &mut content);
        content.extend_from_slice(SECTION.as_bytes());
        content.extend_from_slice(&text);
        // Section id 0 is a custom section. Source: the binary format of WebAssembly, section 5.5.3.
        component.push(0);
        write_leb128(content.len(), &mut component);
        component.extend_from_slice(&content);
        component
    }

    /// Reads `[package.metadata.saggar]` of a package from the output of `cargo metadata`. The plugin's name is the
    /// package's.
    ///
    /// # Errors
    /// A message about what is wrong.
    pub fn from_package(name: &str, metadata: &Value) -> Result<PluginDeclarations, String> {
        match metadata.get("saggar") {
            None | Some(Value::Null) => Ok(PluginDeclarations { name: Some(name.to_owned()), ..Self::default() }),
            Some(table) => PluginDeclarations::from_table(name, table)
                .map_err(|reason| format!("[package.metadata.saggar]: {reason}")),
        }
    }

    /// Reads the declarations of the plugin `name` from a table of its manifest.
    ///
    /// # Errors
    /// A message about what is wrong.
    pub fn from_table(name: &str, table: &Value) -> Result<PluginDeclarations, String> {
        let read = PluginDeclarations::deserialize(table).map_err(|error| error.to_string());
        let declared = read.and_then(PluginDeclarations::validate)?;
        Ok(PluginDeclarations { name: Some(name.to_owned()), ..declared })
    }

    fn validate(self) -> Result<PluginDeclarations, String> {
        for (name, declared) in &self.parameters {
            declared.validate().map_err(|reason| format!("parameters.{name}: {reason}"))?;
            if declared.kind.is_reference() {
                return Err(format!("parameters.{name}: type {} is for inputs and outputs", declared.kind.name()));
            }
        }
        for (name, declared) in &self.inputs {
            let checked = check_port_name(name).and_then(|()| declared.validate());
            checked.map_err(|reason| format!("inputs.{name}: {reason}"))?;
        }
        for (name, declared) in &self.outputs {
            let checked = check_port_name(name).and_then(|()| declared.validate());
            checked.map_err(|reason| format!("outputs.{name}: {reason}"))?;
            if declared.default.is_some() {
                return Err(format!("outputs.{name}: an output has no default"));
            }
        }
        for (table, count) in [("inputs", self.inputs.len()), ("outputs", self.outputs.len())] {
            if count > STEP_PORTS_MAX {
                return Err(format!("{count} {table}, and at most {STEP_PORTS_MAX} are accepted"));
            }
        }
        Ok(self)
    }
}

/// Refuses a name of an input or output that is not usable as a file name and in references.
fn check_port_name(name: &str) -> Result<(), String> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    let begins = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
    if begins && name.len() <= PORT_NAME_BYTES_MAX && name.bytes().all(letters) {
        return Ok(());
    }
    Err(format!("expected a name of 1 to {PORT_NAME_BYTES_MAX} of a-z, 0-9, '_' and '-', beginning with a letter"))
}

fn parse_declarations(text: &[u8]) -> Result<PluginDeclarations, String> {
    if text.len() > DECLARATIONS_BYTES_MAX {
        return Err(format!(
            "its declarations have {} bytes, and at most {DECLARATIONS_BYTES_MAX} are read",
            text.len()
        ));
    }
    let read = serde_json::from_slice::<PluginDeclarations>(text).map_err(|error| error.to_string());
    read.and_then(PluginDeclarations::validate).map_err(|reason| format!("its declarations: {reason}"))
}

fn write_leb128(mut value: usize, into: &mut Vec<u8>) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return into.push(low);
        }
        into.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An empty component.
    const EMPTY_COMPONENT: [u8; 8] = [0, b'a', b's', b'm', 0x0d, 0, 1, 0];

    fn declarations_from_metadata(metadata: Value) -> Result<PluginDeclarations, String> {
        PluginDeclarations::from_package("net", &json!({ "saggar": metadata }))
    }

    #[test]
    fn declarations_round_trip_through_the_component() {
        let batch = json!({ "type": "integer", "min": 1, "max": 4096, "default": 32, "help": "Items of a step." });
        let metadata = json!({ "parameters": { "batch": batch }, "data": { "/data": ["image", "label"] } });
        let declarations = declarations_from_metadata(metadata).unwrap();
        let component = declarations.append_to(EMPTY_COMPONENT.to_vec());
        assert_eq!(PluginDeclarations::from_component(&component).unwrap(), declarations);
        assert_eq!(PluginDeclarations::from_component(&EMPTY_COMPONENT).unwrap(), PluginDeclarations::default());
        assert_eq!(PluginDeclarations::default().append_to(EMPTY_COMPONENT.to_vec()), EMPTY_COMPONENT);
        let nothing_but_a_name = PluginDeclarations::from_package("net", &Value::Null).unwrap();
        assert_eq!(
            nothing_but_a_name,
            PluginDeclarations { name: Some("net".to_owned()), ..PluginDeclarations::default() }
        );
        let component = nothing_but_a_name.append_to(EMPTY_COMPONENT.to_vec());
        assert_eq!(PluginDeclarations::from_component(&component).unwrap().name.as_deref(), Some("net"));
    }

    #[test]
    fn a_malformed_declarations_section_is_refused() {
        let name = [&[SECTION.len() as u8], SECTION.as_bytes()].concat();
        for text in ["", "{", "{\"parameters\": 3}", "{\"colour\": 1}"] {
            let content = [&name, text.as_bytes()].concat();
            let component = [&EMPTY_COMPONENT[..], &[0, content.len() as u8], &content].concat();
            let error = PluginDeclarations::from_component(&component).unwrap_err();
            assert!(error.to_string().contains("its declarations"), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_declarations_are_refused_by_the_build() {
        let cases = [
            (json!({ "parameters": { "batch": { "type": "text", "min": 1 } } }), "parameters.batch: min and max"),
            (json!({ "parameters": { "lr": { "type": "number", "choices": ["a"] } } }), "parameters.lr: choices"),
            (json!({ "parameters": { "lr": { "type": "number", "min": 2, "max": 1 } } }), "min is above max"),
            (
                json!({ "parameters": { "batch": { "type": "integer", "min": 1, "default": 0 } } }),
                "parameters.batch: the default 0 is not an integer of at least 1",
            ),
            (json!({ "parametres": {} }), "unknown field `parametres`"),
            (json!({ "parameters": { "d": { "type": "dataset" } } }), "parameters.d: type dataset is for inputs"),
            (json!({ "inputs": { "Table": { "type": "dataset" } } }), "inputs.Table: expected a name"),
            (json!({ "inputs": { "d": { "type": "dataset", "default": "digits" } } }), "inputs.d: type dataset has no"),
            (json!({ "outputs": { "x": { "type": "number", "default": 1 } } }), "outputs.x: an output has no default"),
            (json!({ "outputs": { "x": { "type": "tensor" } } }), "unknown variant `tensor`"),
        ];
        for (metadata, reason) in cases {
            let refused = declarations_from_metadata(metadata).unwrap_err();
            assert!(refused.starts_with("[package.metadata.saggar]: ") && refused.contains(reason), "{refused}");
        }
    }
}
