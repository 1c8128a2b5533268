//! Generates components that export a plugin's interface but have any behaviour, or any compilation cost.

#[path = "../../host/plugin/tests/support/trainer.rs"]
mod trainer_component;

use trainer_component::TrainerComponent;

/// Returns a component that exports a plugin's interface and traps when it runs.
pub fn trapping_plugin() -> Vec<u8> {
    component_with_train_body("", "", "", "unreachable")
}

/// Returns a component whose `train` has the body `body`, in a module with the fields `fields`, instantiated with
/// `arguments`, after the imports and definitions in `prelude`.
///
/// # Panics
/// If the text is not a component.
pub fn component_with_train_body(prelude: &str, arguments: &str, fields: &str, body: &str) -> Vec<u8> {
    TrainerComponent { prelude, arguments, fields, body, ..TrainerComponent::default() }.wasm()
}

/// Encodes a number as unsigned LEB128.
pub fn encode_leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &encode_leb128(content.len()), content].concat()
}

/// Returns the plugin with an additional core module of functions that are never called. Each has `locals` locals of
/// type `i32` and the body `code`.
pub fn plugin_with_functions(functions: usize, locals: usize, code: &[u8]) -> Vec<u8> {
    let body = [&[1][..], &encode_leb128(locals), &[0x7f], code, &[0x0b]].concat();
    let body = [encode_leb128(body.len()), body].concat();
    let types = section(1, &[1, 0x60, 0, 0]);
    let declared = section(3, &[encode_leb128(functions), vec![0; functions]].concat());
    let bodies = section(10, &[encode_leb128(functions), body.repeat(functions)].concat());
    let module = [b"\0asm\x01\0\0\0".to_vec(), types, declared, bodies].concat();
    [trapping_plugin(), section(1, &module)].concat()
}
