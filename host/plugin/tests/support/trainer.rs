//! Trainer components written as WebAssembly text, for the tests of this crate and of `saggar-tests`.

/// The parts of a component whose only export is the trainer interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainerComponent<'a> {
    /// Imports and definitions of the component, before its module.
    pub(crate) prelude: &'a str,
    /// Arguments of the module's instantiation: `(with "host" (instance ..))`.
    pub(crate) arguments: &'a str,
    /// Imports and definitions of the module.
    pub(crate) fields: &'a str,
    /// Initial pages of memory.
    pub(crate) pages: u32,
    /// The body of `train`.
    pub(crate) body: &'a str,
    /// The version of the exported interface.
    pub(crate) version: &'a str,
}

impl Default for TrainerComponent<'_> {
    fn default() -> Self {
        TrainerComponent { prelude: "", arguments: "", fields: "", pages: 1, body: "", version: "0.1.0" }
    }
}

impl TrainerComponent<'_> {
    /// Returns the component in binary form.
    pub(crate) fn wasm(&self) -> Vec<u8> {
        let TrainerComponent { prelude, arguments, fields, pages, body, version } = self;
        let text = format!(
            r#"(component
                {prelude}
                (core module $m
                  {fields}
                  (memory (export "memory") {pages})
                  (func (export "train") (result i32) {body} i32.const 0))
                (core instance $i (instantiate $m {arguments}))
                (type $code' (enum "invalid-argument" "unsupported" "out-of-memory" "device-lost" "cancelled" "not-found"
                  "internal"))
                (export $code "error-code" (type $code'))
                (type $error' (record (field "code" $code) (field "message" string) (field "place" (option string))))
                (export $error "error" (type $error'))
                (func $train (result (result (error $error)))
                  (canon lift (core func $i "train") (memory (core memory $i "memory"))))
                (instance $trainer (export "train" (func $train)))
                (export "saggar:plugin/trainer@{version}" (instance $trainer)))"#
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
