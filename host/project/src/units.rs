//! Parsers of durations, sizes, percentages and intervals. A number without a unit is refused, because readers cannot
//! tell seconds from minutes.

use core::time::Duration;

use crate::error::UnitError;

const TIME_UNITS: [(&str, f64); 6] =
    [("us", 0.000_001), ("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
const SIZE_UNITS: [(&str, f64); 5] =
    [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0), ("B", 1.0)];

/// An interval after which something is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrSteps {
    /// A time.
    Time(Duration),
    /// A number of steps.
    Steps(u64),
}

/// Parses durations such as `90s`, `10m`, `1h`, `500ms` or `2d`.
///
/// # Errors
/// `UnitError::Duration` if the unit is missing or unknown, or the duration is negative or too long.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let seconds = parse_with_unit(text, &TIME_UNITS).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| UnitError::Duration { text: text.to_owned() })
}

/// Parses sizes such as `512MiB`, `4GiB`, `100KiB` or `64B`. Returns bytes.
///
/// # Errors
/// `UnitError::Size` if the unit is missing or unknown, or the size is negative.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let bytes = parse_with_unit(text, &SIZE_UNITS).ok_or_else(|| UnitError::Size { text: text.to_owned() })?;
    Ok(bytes as u64)
}

/// Parses a price per hour, such as `0.65/h`.
///
/// # Errors
/// `UnitError::Price` if it is not a finite number from 0 followed by `/h`.
pub fn parse_hourly_price(text: &str) -> Result<f64, UnitError> {
    let number = text.strip_suffix("/h").and_then(|number| number.trim().parse().ok());
    let number = number.filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    number.ok_or_else(|| UnitError::Price { text: text.to_owned() })
}

/// Parses a percentage such as `10%`.
///
/// # Errors
/// `UnitError::Percent` if the percent sign is missing, or the number is not whole or above 100.
pub fn parse_percent(text: &str) -> Result<u32, UnitError> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse().ok()).filter(|share| *share <= 100);
    number.ok_or_else(|| UnitError::Percent { text: text.to_owned() })
}

/// Parses a share of something as a percentage above 0, such as `1%` or `0.5%`. Returns a number up to 1.
///
/// # Errors
/// `UnitError::Percent` if the percent sign is missing, or the number is not above 0 or is above 100.
pub fn parse_share(text: &str) -> Result<f64, UnitError> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = number.filter(|share| *share > 0.0 && *share <= 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| UnitError::Percent { text: text.to_owned() })
}

/// Parses an interval such as `30s` or `100steps`.
///
/// # Errors
/// `UnitError::Interval` if it is neither a time nor a number of steps.
pub fn parse_interval(text: &str) -> Result<TimeOrSteps, UnitError> {
    let refused = || UnitError::Interval { text: text.to_owned() };
    match text.strip_suffix("steps") {
        Some(steps) => steps.trim().parse().map(TimeOrSteps::Steps).map_err(|_| refused()),
        None => parse_duration(text).map(TimeOrSteps::Time).map_err(|_| refused()),
    }
}

fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number * factor;
    (value.is_finite() && value >= 0.0 && value < u64::MAX as f64).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_parsed_and_numbers_without_units_are_refused() {
        assert_eq!(parse_duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("1.5h").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("1500us").unwrap(), Duration::from_micros(1500));
        assert_eq!(parse_bytes("512MiB").unwrap(), 512 << 20);
        assert_eq!(parse_percent("10%").unwrap(), 10);
        assert_eq!(parse_interval("100steps").unwrap(), TimeOrSteps::Steps(100));
        assert_eq!(parse_interval("30s").unwrap(), TimeOrSteps::Time(Duration::from_secs(30)));
        for bad in ["90", "", "s", "-1s", "1 fortnight", "1e999s", "nans"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        for bad in ["4", "4GB", "GiB", "-1MiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_hourly_price("0.65/h").unwrap(), 0.65);
        for bad in ["0.65", "-1/h", "/h", "inf/h", "1/d"] {
            assert!(parse_hourly_price(bad).is_err(), "{bad}");
        }
        for bad in ["10", "101%", "-1%", "%"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_interval("30").unwrap_err().to_string(),
            "invalid interval \"30\": expected a time or a number of steps, such as 30s or 100steps"
        );
    }
}
