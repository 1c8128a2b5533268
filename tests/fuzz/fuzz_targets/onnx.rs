//! Checks that any bytes are refused as a model, or imported as a configuration that can be restored.
#![no_main]

// The name that plugins know it by, also in the module below.
extern crate guest_library as saggar_plugin;

use libfuzzer_sys::fuzz_target;
use onnx::import::{import, restore};
use saggar_plugin::Params;

#[path = "../../../plugins/onnx/tests/suite/interpreter.rs"]
#[allow(dead_code, reason = "the importer's tests run models, too")]
mod interpreter;

fuzz_target!(|file: &[u8]| {
    let mut variables = interpreter::TestWeightStore::default();
    let Ok(config) = import(file, &Params::new(), &mut variables) else { return };
    restore(&config).expect("a configuration of the importer's own");
});
