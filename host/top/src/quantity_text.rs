//! Quantities as short texts.

use jiff::Timestamp;
use saggar_charts::format_number;

/// What stands for a value that is not known.
pub(crate) const UNKNOWN: &str = "-";

/// Formats a value, or what stands for an unknown one.
pub(crate) fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), format_number)
}

/// Formats seconds in milliseconds: `12.35ms`.
pub(crate) fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| UNKNOWN.to_owned(), |seconds| format!("{}ms", short_number(seconds * 1000.0)))
}

/// Formats a value in three significant digits.
pub(crate) fn short_number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 1e-3 => 2,
        _ => return format_number(value),
    };
    if value.abs() >= 9999.5 { format_number(value) } else { format!("{value:.digits$}") }
}

/// Formats a time that something took: `42s`, `2m 06s`, `3h 05m`, `2d 04h`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes:02}m"),
        (days, hours, ..) => format!("{days}d {hours:02}h"),
    }
}

/// Formats the length of a window: `90s`, `60m`, `2h`.
pub(crate) fn window(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        120..7200 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h", format_number(seconds as f64 / 3600.0)),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a time of day, in UTC: `23:15:00`.
pub(crate) fn time_of_day(ms: u64) -> String {
    let time = Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    time.to_string().get(11..19).unwrap_or(UNKNOWN).to_owned()
}

/// Draws a share, from 0 to 1, as a bar of a number of characters, in eighths of a character.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = ['·', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let full = eighths / 8;
    let mut bar = "█".repeat(full);
    if full < columns {
        bar.push(EIGHTHS[eighths % 8]);
        bar.push_str(&"·".repeat(columns - full - 1));
    }
    bar
}

#[cfg(test)]
mod tests {
    use saggar_charts::format_bytes;

    use super::*;

    #[test]
    fn quantities_are_short() {
        assert_eq!((milliseconds(Some(0.012_345)).as_str(), milliseconds(None).as_str()), ("12.3ms", "-"));
        assert_eq!(
            [0.0, 1.5, 99.96, 123.4, 12_345.0, 1e-5].map(short_number),
            ["0", "1.50", "100", "123", "12.35k", "1e-5"]
        );
        assert_eq!([42.9, 126.0, 11_100.0, 187_200.0].map(duration), ["42s", "2m 06s", "3h 05m", "2d 04h"]);
        assert_eq!([90, 3600, 90 * 60, 7200, 9000].map(window), ["90s", "60m", "90m", "2h", "2.5h"]);
        assert_eq!(time_of_day(1_764_198_930_000), "23:15:30");
        assert_eq!((bar(0.0, 3).as_str(), bar(0.5, 3).as_str(), bar(1.0, 3).as_str()), ("···", "█▌·", "███"));
        assert_eq!(format_bytes(4_928_307), "4.7 MiB");
    }
}
