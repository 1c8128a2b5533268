//! Trainers as text: components that are plugins by their one export, and do what a test writes into them.

/// What a trainer is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trainer<'a> {
    /// Imports and definitions of the component, before its module.
    pub(crate) prelude: &'a str,
    /// What the module is instantiated with: `(with "host" (instance ..))`.
    pub(crate) arguments: &'a str,
    /// Imports and definitions of the module.
    pub(crate) fields: &'a str,
    /// Pages of memory from the start.
    pub(crate) pages: u32,
    /// What `train` does.
    pub(crate) body: &'a str,
    /// The version of the exported interface.
    pub(crate) version: &'a str,
}

impl Default for Trainer<'_> {
    fn default() -> Self {
        Trainer { prelude: "", arguments: "", fields: "", pages: 1, body: "", version: "0.1.0" }
    }
}

impl Trainer<'_> {
    /// The component.
    pub(crate) fn wasm(&self) -> Vec<u8> {
        let Trainer { prelude, arguments, fields, pages, body, version } = self;
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
