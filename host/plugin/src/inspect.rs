//! Inspects a component before any of it runs: its imports and exports, and reasons to refuse it.

use std::collections::BTreeSet;

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;
use wit_component::DecodedWasm;
use wit_parser::{WorldItem, WorldKey};

use crate::error::{PluginError, WIT_VERSION};
use crate::limits::COMPONENT_BYTES_MAX;
use crate::wasi;

const PACKAGE: &str = "saggar:plugin/";
const TRAINER: &str = "trainer";
const PREDICTOR: &str = "predictor";
const IMPORTER: &str = "importer";
const HTTP_HANDLER: &str = "http-handler";
const STEP: &str = "step";
/// Interfaces that every plugin can import.
pub(crate) const PLUGIN_IMPORTS: [&str; 6] = ["tensors", "variables", "graphs", "logging", "replies", "http-stream"];
/// Interfaces that only a plugin with a trainer or a step can import.
pub(crate) const JOB_IMPORTS: [&str; 2] = ["datasets", "job"];

/// The parts of the plugin interface that a component exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportedRoles {
    pub(crate) trains: bool,
    pub(crate) predicts: bool,
    pub(crate) imports: bool,
    pub(crate) handles: bool,
    pub(crate) is_step: bool,
}

/// Checks by the first bytes whether this can be a component.
///
/// # Errors
/// `TooLarge`; `NotComponent`, with what the bytes are instead.
pub(crate) fn check_preamble(wasm: &[u8]) -> Result<(), PluginError> {
    if wasm.len() > COMPONENT_BYTES_MAX {
        return Err(PluginError::TooLarge { bytes: wasm.len(), limit_bytes: COMPONENT_BYTES_MAX });
    }
    let reason = match wasm {
        [] => "the file is empty".to_owned(),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => return Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {
            "it is a core module: make a component of it with `saggar build` or `wasm-tools component new`".to_owned()
        }
        [0, b'a', b's', b'm', rest @ ..] => {
            let version: Vec<String> = rest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            format!("it is WebAssembly of a form this host does not know (version bytes {})", version.join(" "))
        }
        _ => "it does not begin as WebAssembly does".to_owned(),
    };
    Err(PluginError::NotComponent { reason })
}

/// The imports and exports of a component, by name.
#[derive(Debug)]
pub(crate) struct ComponentInterface {
    pub(crate) exports: Vec<String>,
    /// Without types, which a host does not provide.
    pub(crate) imports: Vec<ComponentImport>,
}

/// An import of a component.
#[derive(Debug)]
pub(crate) struct ComponentImport {
    pub(crate) name: String,
    /// Whether it is an interface, as opposed to a function, for example.
    pub(crate) is_interface: bool,
}

impl ComponentInterface {
    /// Returns the interface of a compiled component.
    pub(crate) fn from_component(component: &Component, engine: &Engine) -> ComponentInterface {
        let types = component.component_type();
        let import = |name: &str, item: &ComponentItem| match item {
            ComponentItem::Type(_) => None,
            item => {
                let is_interface = matches!(item, ComponentItem::ComponentInstance(_));
                Some(ComponentImport { name: name.to_owned(), is_interface })
            }
        };
        ComponentInterface {
            exports: types.exports(engine).map(|(name, _)| name.to_owned()).collect(),
            imports: types.imports(engine).filter_map(|(name, item)| import(name, &item.ty)).collect(),
        }
    }

    /// Returns the interface of a component without compiling it, or `None` if the bytes are not a component.
    pub(crate) fn from_bytes(wasm: &[u8]) -> Option<ComponentInterface> {
        let Ok(DecodedWasm::Component(resolve, world)) = wit_component::decode(wasm) else { return None };
        let world = &resolve.worlds[world];
        let import = |(key, item): (&WorldKey, &WorldItem)| match item {
            WorldItem::Type { .. } => None,
            item => {
                let is_interface = matches!(item, WorldItem::Interface { .. });
                Some(ComponentImport { name: resolve.name_world_key(key), is_interface })
            }
        };
        Some(ComponentInterface {
            exports: world.exports.keys().map(|key| resolve.name_world_key(key)).collect(),
            imports: world.imports.iter().filter_map(import).collect(),
        })
    }
}

/// Checks that this host accepts a component, without compiling it: the component implements a world of this version.
/// Returns `None` if the bytes do not read as a component.
///
/// # Errors
/// `WitVersion`; `UnknownImport`; `NotGranted`; `NoExports`; `HandlerWithoutModel`; `TrainerAndStep`.
pub fn check_component(wasm: &[u8]) -> Option<Result<(), PluginError>> {
    ComponentInterface::from_bytes(wasm).map(|face| check_interface(&face).map(drop))
}

/// Returns the versions of the plugin interface that a component was built against; none if the bytes are no component.
pub fn interface_versions(wasm: &[u8]) -> BTreeSet<String> {
    let face = ComponentInterface::from_bytes(wasm);
    let names = face.into_iter().flat_map(|face| {
        let imports = face.imports.into_iter().map(|import| import.name);
        face.exports.into_iter().chain(imports).collect::<Vec<_>>()
    });
    let version = |name: String| Some(name.strip_prefix(PACKAGE)?.split_once('@')?.1.to_owned());
    names.filter_map(version).collect()
}

/// Checks a component's imports and exports by name and version.
///
/// # Errors
/// `WitVersion`; `UnknownImport`; `NotGranted`; `NoExports`; `HandlerWithoutModel`; `TrainerAndStep`.
pub(crate) fn check_interface(face: &ComponentInterface) -> Result<ExportedRoles, PluginError> {
    let mut halves = ExportedRoles { trains: false, predicts: false, imports: false, handles: false, is_step: false };
    for name in &face.exports {
        match plugin_interface_name(name)? {
            Some(TRAINER) => halves.trains = true,
            Some(PREDICTOR) => halves.predicts = true,
            Some(IMPORTER) => halves.imports = true,
            Some(HTTP_HANDLER) => halves.handles = true,
            Some(STEP) => halves.is_step = true,
            // Other exports are not for this host; ignore them.
            _ => {}
        }
    }
    if !halves.trains && !halves.predicts && !halves.is_step {
        let exports = if face.exports.is_empty() { "nothing".to_owned() } else { format_names(&face.exports) };
        return Err(PluginError::NoExports { exports });
    }
    if halves.handles && !halves.predicts {
        return Err(PluginError::HandlerWithoutModel);
    }
    if halves.trains && halves.is_step {
        return Err(PluginError::TrainerAndStep);
    }
    for ComponentImport { name, is_interface } in &face.imports {
        let given = if *is_interface { plugin_interface_name(name)? } else { None };
        match given {
            None if *is_interface && wasi::is_provided(name) => {}
            Some(interface) if PLUGIN_IMPORTS.contains(&interface) => {}
            Some(interface) if JOB_IMPORTS.contains(&interface) && (halves.trains || halves.is_step) => {}
            Some(interface) if JOB_IMPORTS.contains(&interface) => {
                return Err(PluginError::NotGranted { import: name.clone() });
            }
            _ => return Err(PluginError::UnknownImport { import: name.clone(), hint: import_hint(name) }),
        }
    }
    Ok(halves)
}

/// Joins the first few names, for a message.
fn format_names(names: &[String]) -> String {
    const NAMES: usize = 8;
    let mut listed = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        listed.push_str(&format!(" and {} more", names.len() - NAMES));
    }
    listed
}

/// Returns the name of an interface in the plugin package, or `None` if `name` is of another package.
///
/// # Errors
/// `WitVersion` if this host does not implement its version.
fn plugin_interface_name(name: &str) -> Result<Option<&str>, PluginError> {
    let Some(name) = name.strip_prefix(PACKAGE) else { return Ok(None) };
    let (interface, found) = name.split_once('@').unwrap_or((name, "none"));
    // Before 1.0, versions with the same minor number are compatible.
    let series = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if series(found) == series(WIT_VERSION) {
        return Ok(Some(interface));
    }
    Err(PluginError::WitVersion { interface: format!("{PACKAGE}{interface}"), found: found.to_owned() })
}

fn import_hint(import: &str) -> &'static str {
    if wasi::is_wasi(import) {
        "plugins have cli, clocks, filesystem, io, random and sockets of WASI 0.2, without any file, clock or network \
         behind them; build for one of these or for wasm32-unknown-unknown"
    } else if import.starts_with(PACKAGE) {
        "it is not part of this version of the plugin interface"
    } else {
        "plugins import the interfaces of saggar:plugin alone"
    }
}
