//! What a component is, before any of it runs: what it imports and exports, and why it is refused.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use crate::error::{PluginError, WIT_VERSION};
use crate::limits::COMPONENT_BYTES_MAX;

const PACKAGE: &str = "saggar:plugin/";
const TRAINER: &str = "trainer";
const PREDICTOR: &str = "predictor";
const IMPORTER: &str = "importer";
/// Interfaces that every plugin is given.
const GIVEN: [&str; 5] = ["tensors", "variables", "graphs", "logging", "replies"];
/// Interfaces that a plugin with a trainer is given besides.
const GIVEN_TRAINER: [&str; 2] = ["datasets", "job"];

/// Which parts of the interface a component exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    pub(crate) trains: bool,
    pub(crate) predicts: bool,
    pub(crate) imports: bool,
}

/// Checks the first bytes: whether this can be a component at all.
///
/// # Errors
/// `TooLarge`; `NotComponent`, saying what it is instead.
pub(crate) fn preamble(wasm: &[u8]) -> Result<(), PluginError> {
    if wasm.len() > COMPONENT_BYTES_MAX {
        return Err(PluginError::TooLarge { bytes: wasm.len(), limit_bytes: COMPONENT_BYTES_MAX });
    }
    let reason = match wasm {
        [] => "the file is empty".to_owned(),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => return Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {
            "it is a core module: make a component of it with `saggar plugin build` or `wasm-tools component new`"
                .to_owned()
        }
        [0, b'a', b's', b'm', rest @ ..] => {
            let version: Vec<String> = rest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            format!("it is WebAssembly of a form this host does not know (version bytes {})", version.join(" "))
        }
        _ => "it does not begin as WebAssembly does".to_owned(),
    };
    Err(PluginError::NotComponent { reason })
}

/// Checks a compiled component's imports and exports by name and version.
///
/// # Errors
/// `WitVersion`; `UnknownImport`; `NotGranted`; `NoExports`.
pub(crate) fn inspect(component: &Component, engine: &Engine) -> Result<Halves, PluginError> {
    let types = component.component_type();
    let exports: Vec<&str> = types.exports(engine).map(|(name, _)| name).collect();
    let mut halves = Halves { trains: false, predicts: false, imports: false };
    for name in &exports {
        match interface(name)? {
            Some(TRAINER) => halves.trains = true,
            Some(PREDICTOR) => halves.predicts = true,
            Some(IMPORTER) => halves.imports = true,
            // What else it exports is for others.
            _ => {}
        }
    }
    if !halves.trains && !halves.predicts {
        let exports = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
        return Err(PluginError::NoExports { exports });
    }
    for (name, item) in types.imports(engine) {
        // A type by itself is nothing that a host gives.
        let given = match item.ty {
            ComponentItem::ComponentInstance(_) => interface(name)?,
            ComponentItem::Type(_) => continue,
            _ => None,
        };
        match given {
            Some(interface) if GIVEN.contains(&interface) => {}
            Some(interface) if GIVEN_TRAINER.contains(&interface) && halves.trains => {}
            Some(interface) if GIVEN_TRAINER.contains(&interface) => {
                return Err(PluginError::NotGranted { import: name.to_owned() });
            }
            _ => return Err(PluginError::UnknownImport { import: name.to_owned(), hint: hint(name) }),
        }
    }
    Ok(halves)
}

/// The name of an interface of the plugin package, if it is one.
///
/// # Errors
/// `WitVersion` where it is of a version that this host does not speak.
fn interface(name: &str) -> Result<Option<&str>, PluginError> {
    let Some(name) = name.strip_prefix(PACKAGE) else { return Ok(None) };
    let (interface, found) = name.split_once('@').unwrap_or((name, "none"));
    // Before 1.0 the minor version is what must agree.
    let series = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if series(found) == series(WIT_VERSION) {
        return Ok(Some(interface));
    }
    Err(PluginError::WitVersion { interface: format!("{PACKAGE}{interface}"), found: found.to_owned() })
}

fn hint(import: &str) -> &'static str {
    if import.starts_with("wasi:") {
        "plugins have no files, clocks or network; build for wasm32-unknown-unknown, or stub WASI (componentize-py \
         --stub-wasi)"
    } else if import.starts_with(PACKAGE) {
        "it is not part of this version of the plugin interface"
    } else {
        "plugins import the interfaces of saggar:plugin alone"
    }
}
