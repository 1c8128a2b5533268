//! Formats of quantities in the output. Input formats are in `saggar_project::units`.

pub(crate) use saggar_charts::format_bytes;
use saggar_jobs::logs::LogSince;
use saggar_project::UnitError;

/// Parses `10m` or `2026-11-21T12:03:13Z` and returns the text, which the server interprets by its own clock. A bare
/// number, which the API accepts as milliseconds, is rejected, because people who type `10` mean minutes or seconds.
pub(crate) fn parse_since(text: &str) -> Result<String, UnitError> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitError::Since { text: text.to_owned() });
    }
    text.parse::<LogSince>().map(|_| text.to_owned())
}

/// Formats seconds: `2m 06s`.
pub(crate) fn format_duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => format!("{:.1}s", seconds.max(0.0)),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

/// Formats a time in ms since 1970: `2026-11-21T23:15:00.000Z`.
pub(crate) fn format_time(ms: u64) -> String {
    saggar_jobs::logs::timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Formats the time since `then_ms`: `3 min ago`.
pub(crate) fn format_age(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_formatted_with_units() {
        assert_eq!(format_bytes(900), "900 B");
        assert_eq!(format_bytes(4_928_307), "4.7 MiB");
        assert_eq!(format_duration(126.2), "2m 06s");
        assert_eq!(format_age(0, 190_000), "3 min ago");
    }
}
