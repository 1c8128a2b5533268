//! Formatting of counts and numbers in error messages.

use crate::op::Scalar;

pub(super) fn format_count_range(least: usize, most: usize) -> String {
    match (least, most) {
        (least, most) if least == most => least.to_string(),
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) => format!("{least} to {most}"),
    }
}

pub(super) fn format_scalar(value: Scalar) -> String {
    match value {
        Scalar::Float(value) => format!("{value:?}"),
        Scalar::Int(value) => value.to_string(),
    }
}
