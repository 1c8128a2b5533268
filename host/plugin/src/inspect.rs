//! What a component is, before any of it runs: what it imports and exports, and why it is refused.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;
use wit_component::DecodedWasm;
use wit_parser::{WorldItem, WorldKey};

use crate::error::{PluginError, WIT_VERSION};
use crate::limits::COMPONENT_BYTES_MAX;

const PACKAGE: &str = "saggar:plugin/";
const TRAINER: &str = "trainer";
const PREDICTOR: &str = "predictor";
const IMPORTER: &str = "importer";
/// Interfaces that every plugin is given.
pub(crate) const PLUGIN_IMPORTS: [&str; 5] = ["tensors", "variables", "graphs", "logging", "replies"];
/// Interfaces that a plugin with a trainer is given besides.
pub(crate) const TRAINER_IMPORTS: [&str; 2] = ["datasets", "job"];

/// Which parts of the interface a component exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportedRoles {
    pub(crate) trains: bool,
    pub(crate) predicts: bool,
    pub(crate) imports: bool,
}

/// Checks the first bytes: whether this can be a component at all.
///
/// # Errors
/// `TooLarge`; `NotComponent`, saying what it is instead.
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

/// What a component takes from a host and gives to it, by name.
#[derive(Debug)]
pub(crate) struct ComponentInterface {
    pub(crate) exports: Vec<String>,
    /// Types by themselves are left out: they are nothing that a host gives.
    pub(crate) imports: Vec<ComponentImport>,
}

/// Something that a component takes.
#[derive(Debug)]
pub(crate) struct ComponentImport {
    pub(crate) name: String,
    /// Whether it is an interface; a bare function, say, is none.
    pub(crate) is_interface: bool,
}

impl ComponentInterface {
    /// Of a component that was compiled.
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

    /// Of a component's bytes, without compiling them. None where they are no component.
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

/// Checks a component's imports and exports by name and version.
///
/// # Errors
/// `WitVersion`; `UnknownImport`; `NotGranted`; `NoExports`.
pub(crate) fn check_interface(face: &ComponentInterface) -> Result<ExportedRoles, PluginError> {
    let mut halves = ExportedRoles { trains: false, predicts: false, imports: false };
    for name in &face.exports {
        match plugin_interface_name(name)? {
            Some(TRAINER) => halves.trains = true,
            Some(PREDICTOR) => halves.predicts = true,
            Some(IMPORTER) => halves.imports = true,
            // What else it exports is for others.
            _ => {}
        }
    }
    if !halves.trains && !halves.predicts {
        let exports = if face.exports.is_empty() { "nothing".to_owned() } else { format_names(&face.exports) };
        return Err(PluginError::NoExports { exports });
    }
    for ComponentImport { name, is_interface } in &face.imports {
        let given = if *is_interface { plugin_interface_name(name)? } else { None };
        match given {
            Some(interface) if PLUGIN_IMPORTS.contains(&interface) => {}
            Some(interface) if TRAINER_IMPORTS.contains(&interface) && halves.trains => {}
            Some(interface) if TRAINER_IMPORTS.contains(&interface) => {
                return Err(PluginError::NotGranted { import: name.clone() });
            }
            _ => return Err(PluginError::UnknownImport { import: name.clone(), hint: import_hint(name) }),
        }
    }
    Ok(halves)
}

/// Names for a message: the first few of them.
fn format_names(names: &[String]) -> String {
    const NAMES: usize = 8;
    let mut listed = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        listed.push_str(&format!(" and {} more", names.len() - NAMES));
    }
    listed
}

/// The name of an interface of the plugin package, if it is one.
///
/// # Errors
/// `WitVersion` where it is of a version that this host does not speak.
fn plugin_interface_name(name: &str) -> Result<Option<&str>, PluginError> {
    let Some(name) = name.strip_prefix(PACKAGE) else { return Ok(None) };
    let (interface, found) = name.split_once('@').unwrap_or((name, "none"));
    // Before 1.0 the minor version is what must agree.
    let series = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if series(found) == series(WIT_VERSION) {
        return Ok(Some(interface));
    }
    Err(PluginError::WitVersion { interface: format!("{PACKAGE}{interface}"), found: found.to_owned() })
}

fn import_hint(import: &str) -> &'static str {
    if import.starts_with("wasi:") {
        "plugins have no files, clocks or network; build for wasm32-unknown-unknown, or stub WASI (componentize-py \
         --stub-wasi)"
    } else if import.starts_with(PACKAGE) {
        "it is not part of this version of the plugin interface"
    } else {
        "plugins import the interfaces of saggar:plugin alone"
    }
}
