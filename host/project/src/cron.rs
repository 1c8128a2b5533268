//! Cron lines of five fields, in UTC: minute, hour, day of the month, month, day of the week. If both day fields are
//! restricted, either must match, as in cron.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};

use crate::error::CronError;

const FIELD_NAMES: [&str; 5] = ["minute", "hour", "day-of-month", "month", "day-of-week"];

/// A cron line.
#[derive(Clone, Debug)]
pub struct CronSchedule {
    text: String,
    crontab: Crontab,
}

impl CronSchedule {
    /// Parses a line such as `15 23 * * *`.
    ///
    /// # Errors
    /// `CronError` with the field and its position; `Never` for a date that does not exist.
    pub fn parse(text: &str) -> Result<CronSchedule, CronError> {
        let fields = split_fields(text);
        if fields.len() != FIELD_NAMES.len() {
            return Err(CronError::Fields { count: fields.len() });
        }
        // Parse each field alone, among stars: the library gives the reason of an error, this gives the position.
        for (at, ((offset, word), field)) in fields.iter().zip(FIELD_NAMES).enumerate() {
            let mut line = ["*"; FIELD_NAMES.len()];
            line[at] = word;
            parse_crontab(&line.join(" ")).map_err(|reason| CronError::Field {
                field,
                text: (*word).to_owned(),
                reason,
                offset: *offset,
            })?;
        }
        let crontab = parse_crontab(text).map_err(|reason| CronError::Field {
            field: FIELD_NAMES[0],
            text: text.to_owned(),
            reason,
            offset: 0,
        })?;
        let cron = CronSchedule { text: text.to_owned(), crontab };
        // The library searches four years. The four years from 2001 include a leap year.
        match cron.next_after(978_307_200_000) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never),
        }
    }

    /// Returns the first matching time after `ms`, both in milliseconds since 1970. Returns `None` at the end of the
    /// calendar.
    pub fn next_after(&self, ms: u64) -> Option<u64> {
        let after = MakeTimestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let next = self.crontab.find_next(after).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }

    /// Returns the last matching time after `after_ms` and until `now_ms`, or `None`. Of a time of more than a day, only
    /// the last day is searched minute by minute, so that a clock that was set forward by years takes no longer.
    pub fn last_between(&self, after_ms: u64, now_ms: u64) -> Option<u64> {
        let mut last = None;
        let mut after = after_ms;
        let yesterday = now_ms.saturating_sub(24 * 3_600_000);
        if after < yesterday {
            last = self.next_after(after).filter(|next| *next <= now_ms);
            after = yesterday;
        }
        while let Some(next) = self.next_after(after).filter(|next| *next <= now_ms) {
            last = Some(next);
            after = next;
        }
        last
    }

    /// Returns the line as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for CronSchedule {
    fn eq(&self, other: &CronSchedule) -> bool {
        self.text == other.text
    }
}

impl Eq for CronSchedule {}

/// Returns the fields of a line, each with its offset in bytes.
fn split_fields(text: &str) -> Vec<(usize, &str)> {
    let offset = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| (offset(word), word)).collect()
}

fn parse_crontab(line: &str) -> Result<Crontab, String> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    // The library's message ends with the reason, after a caret.
    let reason = |text: String| text.rsplit_once("^ ").map_or(text.clone(), |(_, reason)| reason.to_owned());
    cronexpr::parse_crontab_with(line, options).map_err(|error| reason(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(line: &str, after: &str) -> String {
        let after: jiff::Timestamp = after.parse().unwrap();
        let after = u64::try_from(after.as_millisecond()).unwrap();
        let next = CronSchedule::parse(line).unwrap().next_after(after).unwrap();
        jiff::Timestamp::from_millisecond(i64::try_from(next).unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_time_is_strictly_later_and_in_utc() {
        assert_eq!(next("15 23 * * *", "2026-11-22T23:14:59.999Z"), "2026-11-22T23:15:00Z");
        assert_eq!(next("15 23 * * *", "2026-11-22T23:15:00Z"), "2026-11-23T23:15:00Z");
        assert_eq!(next("*/10 * * * *", "2026-11-22T23:51:00Z"), "2026-11-23T00:00:00Z");
        assert_eq!(next("0 9 * * MON-FRI", "2026-11-20T09:00:00Z"), "2026-11-23T09:00:00Z");
        assert_eq!(next("0 0 29 2 *", "2026-01-01T00:00:00Z"), "2028-02-29T00:00:00Z");
        // Either the thirteenth or a Friday.
        assert_eq!(next("0 0 13 * 5", "2026-11-22T00:00:00Z"), "2026-11-27T00:00:00Z");
        assert_eq!(next("0 0 * * 0", "2026-11-21T00:00:00Z"), "2026-11-22T00:00:00Z");
    }

    #[test]
    fn cron_errors_name_the_field_and_its_offset() {
        let refused = |line: &str| {
            let error = CronSchedule::parse(line).unwrap_err();
            (error.offset(), error.to_string())
        };
        assert!(refused("* * *").1.starts_with("3 fields: expected 5"));
        assert!(refused("0 0 * * * UTC").1.starts_with("6 fields"));
        assert!(refused("@daily").1.starts_with("1 fields"));
        let (offset, message) = refused("15 25 * * *");
        assert_eq!(offset, 3);
        assert!(message.starts_with("hour \"25\": ") && message.contains("23"), "{message}");
        assert_eq!(refused("0 0 *  FOO *").0, 7);
        assert!(refused("*/0 * * * *").1.starts_with("minute"), "{:?}", refused("*/0 * * * *"));
        assert_eq!(refused("0 0 30 2 *"), (0, "this date never occurs".to_owned()));
        assert!(CronSchedule::parse("").is_err());
    }
}
