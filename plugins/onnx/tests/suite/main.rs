//! Imports without a host: models are built and run by the interpreter that defines the operators.

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
