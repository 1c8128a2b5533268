//! Encodes a core module as a component.

use wit_component::ComponentEncoder;

use crate::declarations::PluginDeclarations;

/// Encodes a core module that was built with our interfaces as a component, with the declarations of its plugin.
///
/// # Errors
/// A message if the module imports something that the host does not offer, or lacks an export.
pub fn encode_component(module: &[u8], declarations: &PluginDeclarations) -> Result<Vec<u8>, String> {
    let component = ComponentEncoder::default().validate(true).module(module).and_then(|encoder| encoder.encode());
    component.map(|component| declarations.append_to(component)).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_plugin_exports_is_refused() {
        let encode = |module: &[u8]| encode_component(module, &PluginDeclarations::default());
        assert!(encode(b"\0asm\x01\0\0\0").is_ok(), "an empty component");
        encode(b"\0asm").unwrap_err();
        // `(module (import "env" "read" (func)))`: an import that is in none of our interfaces.
        let foreign = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x0c\x01\x03env\x04read\0\0";
        let reason = encode(foreign).unwrap_err();
        assert!(reason.contains("env"), "{reason}");
    }
}
