//! The reference plugins, inside the program: `saggar run lenet` needs no file.
//!
//! The build script compiles `plugins/NAME` as `saggar build plugins/NAME` does, so both give the same component, with
//! the same digest.

use std::sync::OnceLock;

use saggar_plugin::{PluginDeclarations, encode_component};
use saggar_store::digest::Digest;

/// The name of the reference plugin that reads ONNX files.
pub const ONNX_PLUGIN: &str = "onnx";

/// A plugin that the program contains.
#[derive(Debug)]
pub struct ReferencePlugin {
    name: &'static str,
    module: &'static [u8],
    /// The tables of `[package.metadata]` in its manifest, as JSON.
    metadata: &'static str,
    component: OnceLock<(Vec<u8>, Digest)>,
}

/// Name, core module and manifest of each.
type CompiledPlugins = &'static [(&'static str, &'static [u8], &'static str)];

static COMPILED_PLUGINS: CompiledPlugins = include!(concat!(env!("OUT_DIR"), "/plugins.rs"));

/// Returns the reference plugins.
pub fn reference_plugins() -> &'static [ReferencePlugin] {
    static PLUGINS: OnceLock<Vec<ReferencePlugin>> = OnceLock::new();
    PLUGINS.get_or_init(|| {
        let plugin = |(name, module, metadata): &(&'static str, &'static [u8], &'static str)| ReferencePlugin {
            name,
            module,
            metadata,
            component: OnceLock::new(),
        };
        COMPILED_PLUGINS.iter().map(plugin).collect()
    })
}

/// The version of the reference plugins, which is that of the program that contains them.
pub const REFERENCE_PLUGINS_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the reference plugin that `name` means: its name, optionally with `@` and [`REFERENCE_PLUGINS_VERSION`]. `None` if
/// no plugin has this name, or this program contains another version.
pub fn reference_plugin(name: &str) -> Option<&'static ReferencePlugin> {
    let (name, version) = name.split_once('@').unwrap_or((name, REFERENCE_PLUGINS_VERSION));
    let is_here = version == REFERENCE_PLUGINS_VERSION;
    reference_plugins().iter().find(|plugin| is_here && plugin.name == name)
}

impl ReferencePlugin {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its component. The first call encodes it, which takes some ten milliseconds.
    pub fn component(&'static self) -> &'static [u8] {
        &self.encoded().0
    }

    /// Returns the digest of its component. The first call encodes it.
    pub fn digest(&'static self) -> &'static Digest {
        &self.encoded().1
    }

    fn encoded(&self) -> &(Vec<u8>, Digest) {
        self.component.get_or_init(|| {
            let encoded = encode_component(self.module, &self.declarations())
                .expect("the module is compiled against the interfaces of this program");
            let digest = Digest::of(&encoded);
            (encoded, digest)
        })
    }

    /// Returns its declarations.
    pub fn declarations(&self) -> PluginDeclarations {
        let metadata = serde_json::from_str(self.metadata).expect("the build script writes JSON");
        PluginDeclarations::from_package(self.name, &metadata).expect("the declarations are those of this repository")
    }
}

#[cfg(test)]
mod tests {
    use saggar_plugin::check_component;

    use super::*;

    #[test]
    fn every_reference_plugin_is_a_component_that_this_program_accepts() {
        let mut digests = Vec::new();
        for plugin in reference_plugins() {
            let component = plugin.component();
            check_component(component).unwrap().unwrap_or_else(|error| panic!("{}: {error}", plugin.name()));
            let declared = PluginDeclarations::from_component(component).unwrap();
            assert_eq!((declared.name.as_deref(), &declared), (Some(plugin.name()), &plugin.declarations()));
            assert_eq!(reference_plugin(plugin.name()).unwrap().digest(), &Digest::of(component));
            digests.push(plugin.digest());
        }
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), reference_plugins().len());
        assert!(reference_plugin("Lenet").is_none());
        let versioned = format!("lenet@{REFERENCE_PLUGINS_VERSION}");
        assert_eq!(reference_plugin(&versioned).unwrap().name(), "lenet");
        assert!(reference_plugin("lenet@99.0.0").is_none() && reference_plugin("lenet@").is_none());
    }
}
