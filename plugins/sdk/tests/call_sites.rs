//! Errors of the crate name the line of the plugin that called it. This file stands for the plugin.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_plugin::bindings::tensors;
use saggar_plugin::{Error, ErrorCode, NamedTensor, Result, Tensor, named};

fn label_of(outputs: &[NamedTensor]) -> Result<&Tensor> {
    named(outputs, "label")
}

#[test]
fn an_error_names_the_line_that_called_the_crate_once() {
    let (error, line) = (named(&[], "label").unwrap_err(), line!());
    let expected = format!("no tensor `label`; available: none (at {}:{line})", file!());
    assert_eq!(error.to_string(), expected);
    // The frames around the call add nothing.
    let error = label_of(&[]).map(drop).unwrap_err();
    assert_eq!(error.to_string().matches(".rs:").count(), 1, "{error}");
}

#[test]
fn the_cause_of_an_error_can_be_matched() {
    let error = named(&[], "label").unwrap_err();
    assert!(matches!(error.cause(), Error::NoSuch { what: "tensor", name, .. } if name == "label"), "{error:?}");
    assert_eq!(Error::Stopped.cause(), &Error::Stopped);
}

#[test]
fn the_host_gets_the_line_as_the_place_of_the_error() {
    let (error, line) = (named(&[], "label").unwrap_err(), line!());
    let sent = tensors::Error::from(error);
    assert_eq!(sent.code, ErrorCode::NotFound);
    assert_eq!(sent.message, "no tensor `label`; available: none");
    assert_eq!(sent.place, Some(format!("{}:{line}", file!())));
}
