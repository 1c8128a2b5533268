//! Numbers as short texts.

/// Formats a value in four significant digits: `0.0218`, `12.35k`, `1.2e-5`. Values that are not finite are `NaN`, `∞`
/// and `-∞`.
pub fn format_number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e15).contains(&size) {
        return trim_exponential(&format!("{value:.3e}"));
    }
    let (scaled, suffix) = scaled(value, size);
    let digits = (3 - exponent_of(scaled)).max(0);
    let text = trim_zeros(&format!("{scaled:.*}", usize::try_from(digits).unwrap_or(0)));
    format!("{text}{suffix}")
}

/// Formats bytes: `4.7 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats the values of an axis alike: with the digits that tell values apart that are `step` apart.
pub(crate) fn format_tick(value: f64, step: f64, size_max: f64) -> String {
    if value.abs() < step * 1e-9 {
        return "0".to_owned();
    }
    if !(1e-3..1e15).contains(&size_max) {
        let digits = (exponent_of(value) - exponent_of(step)).clamp(0, 15);
        return format!("{value:.*e}", usize::try_from(digits).unwrap_or(0));
    }
    let (divisor, suffix) = if size_max < 1e4 { (1.0, "") } else { unit(size_max) };
    let digits = (-exponent_of(step / divisor)).clamp(0, 15);
    format!("{:.*}{suffix}", usize::try_from(digits).unwrap_or(0), value / divisor)
}

/// Returns the power of ten of a value's first digit.
pub(crate) fn exponent_of(value: f64) -> i32 {
    // Added, because the logarithm of a power of ten can be just below a whole number.
    (value.abs().log10() + 1e-12).floor() as i32
}

fn unit(size: f64) -> (f64, &'static str) {
    match size {
        _ if size >= 1e12 => (1e12, "T"),
        _ if size >= 1e9 => (1e9, "G"),
        _ if size >= 1e6 => (1e6, "M"),
        _ => (1e3, "k"),
    }
}

fn scaled(value: f64, size: f64) -> (f64, &'static str) {
    if size < 9999.5 {
        return (value, "");
    }
    let (divisor, suffix) = unit(size);
    (value / divisor, suffix)
}

fn trim_zeros(text: &str) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    }
}

fn trim_exponential(text: &str) -> String {
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", trim_zeros(mantissa)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        let numbers = [
            (0.0, "0"),
            (1.0, "1"),
            (-0.021_789_1, "-0.02179"),
            (1234.5, "1234"),
            (9_999.9, "10k"),
            (12_345.0, "12.35k"),
            (2_000_000.0, "2M"),
            (1.234_56e-5, "1.235e-5"),
            (1e300, "1e300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-∞"),
        ];
        for (value, text) in numbers {
            assert_eq!(format_number(value), text);
        }
    }
}
