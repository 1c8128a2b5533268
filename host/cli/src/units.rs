//! Durations, sizes and intervals as users write and read them.

use std::time::Duration;

use saggar_jobs::CheckpointEvery;

/// Reads `90s`, `10m`, `1h`, `500ms`, `2d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let seconds =
        with_unit(text, &units).ok_or_else(|| format!("{text:?} is no duration: expected such as 90s, 10m or 1h"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads `512MiB`, `4GiB`, `100KiB`, `64B`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let units =
        [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0), ("B", 1.0)];
    let bytes =
        with_unit(text, &units).ok_or_else(|| format!("{text:?} is no size: expected such as 512MiB or 4GiB"))?;
    Ok(bytes as u64)
}

/// A share such as `10%`.
pub(crate) fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok()).filter(|share| *share <= 100);
    number.ok_or_else(|| "expected a share from 0% to 100%".to_owned())
}

/// Reads `30s` or `100steps`.
pub(crate) fn checkpoint_every(text: &str) -> Result<CheckpointEvery, String> {
    if let Some(steps) = text.strip_suffix("steps") {
        let steps = steps.trim().parse().map_err(|_| format!("{text:?}: expected such as 100steps"))?;
        return Ok(CheckpointEvery::Steps(steps));
    }
    let every = duration(text).map_err(|_| format!("{text:?} is no interval: expected such as 30s or 100steps"))?;
    Ok(CheckpointEvery::Milliseconds(u64::try_from(every.as_millis()).unwrap_or(u64::MAX)))
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number * factor;
    (value.is_finite() && value >= 0.0 && value < u64::MAX as f64).then_some(value)
}

/// `4.7 MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// `2m 06s`.
pub(crate) fn show_duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => format!("{:.1}s", seconds.max(0.0)),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

/// `3 min ago`.
pub(crate) fn show_age(then_ms: u64, now_ms: u64) -> String {
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
    fn units_are_read_and_their_absence_is_refused() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1.5h").unwrap(), Duration::from_secs(5400));
        assert_eq!(bytes("512MiB").unwrap(), 512 << 20);
        assert_eq!(checkpoint_every("100steps").unwrap(), CheckpointEvery::Steps(100));
        assert_eq!(checkpoint_every("30s").unwrap(), CheckpointEvery::Milliseconds(30_000));
        for bad in ["90", "", "s", "-1s", "1 fortnight", "1e999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["4", "4GB", "GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantities_are_shown_with_units() {
        assert_eq!(show_bytes(900), "900 B");
        assert_eq!(show_bytes(4_928_307), "4.7 MiB");
        assert_eq!(show_duration(126.2), "2m 06s");
        assert_eq!(show_age(0, 190_000), "3 min ago");
    }
}
