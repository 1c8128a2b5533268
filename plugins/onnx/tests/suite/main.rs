//! Imports without a host: models are built and run by the interpreter that defines the operators.

mod advice;
mod batches;
mod cases;
mod external;
mod hostile;
mod interpreter;
mod masks;
mod network;
mod rules;
mod signatures;
