//! Imports without a host. The reference interpreter builds and runs the models.

mod batches;
mod external;
mod hostile;
mod import_hints;
mod interpreter;
mod masks;
mod onnx_cases;
mod operator_rules;
mod signatures;
mod test_models;
