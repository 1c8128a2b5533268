//! The saggar command.
fn main() {}
