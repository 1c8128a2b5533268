//! Limits on a key's requests: a rate over a short time, and a quota per day or month. Both have a text form.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

/// Text that is neither a rate nor a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}`: expected a whole number from 1 and a time, such as {expected}")]
pub struct ParseLimitError {
    got: String,
    expected: &'static str,
}

/// A rate of requests per second, minute or hour, such as `100/s` or `600/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RateLimit {
    /// The number of requests, at least 1.
    pub requests: u32,
    /// The period in seconds: 1, 60 or 3600.
    pub seconds: u32,
}

/// A quota of requests per calendar day or month in UTC, such as `10000/d` or `1000000/month`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestQuota {
    /// The number of requests, at least 1.
    pub requests: u64,
    /// The period.
    pub period: QuotaPeriod,
}

/// The period of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaPeriod {
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the next, UTC.
    Month,
}

impl QuotaPeriod {
    /// Returns the start of the day or month that contains `now_ms`, and the start of the next.
    pub fn window(self, now_ms: UnixMillis) -> (UnixMillis, UnixMillis) {
        const DAY_MS: u64 = 86_400_000;
        let day = now_ms - now_ms % DAY_MS;
        if self == QuotaPeriod::Day {
            return (day, day.saturating_add(DAY_MS));
        }
        let month = || {
            let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?.to_zoned(TimeZone::UTC);
            let first = now.first_of_month().ok()?.start_of_day().ok()?;
            let next = first.last_of_month().ok()?.tomorrow().ok()?;
            let ms = |time: jiff::Zoned| u64::try_from(time.timestamp().as_millisecond()).ok();
            Some((ms(first)?, ms(next)?))
        };
        // Outside the range of the calendar, thousands of years away, a month is 30 days.
        month().unwrap_or((day, day.saturating_add(30 * DAY_MS)))
    }
}

fn split_limit<'a>(text: &'a str, expected: &'static str) -> Result<(u64, &'a str), ParseLimitError> {
    let refuse = || ParseLimitError { got: text.chars().take(80).collect(), expected };
    let (number, unit) = text.split_once('/').ok_or_else(refuse)?;
    let number: u64 = number.trim().parse().map_err(|_| refuse())?;
    if number == 0 { Err(refuse()) } else { Ok((number, unit.trim())) }
}

impl FromStr for RateLimit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<RateLimit, ParseLimitError> {
        let expected = "100/s, 600/m or 5000/h";
        let refuse = || ParseLimitError { got: text.chars().take(80).collect(), expected };
        let (requests, unit) = split_limit(text, expected)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(refuse()),
        };
        Ok(RateLimit { requests: u32::try_from(requests).map_err(|_| refuse())?, seconds })
    }
}

impl FromStr for RequestQuota {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<RequestQuota, ParseLimitError> {
        let expected = "10000/d or 1000000/month";
        let (requests, unit) = split_limit(text, expected)?;
        let period = match unit {
            "d" | "day" => QuotaPeriod::Day,
            "month" => QuotaPeriod::Month,
            _ => return Err(ParseLimitError { got: text.chars().take(80).collect(), expected }),
        };
        Ok(RequestQuota { requests, period })
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.seconds {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

impl fmt::Display for RequestQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period {
            QuotaPeriod::Day => "d",
            QuotaPeriod::Month => "month",
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

impl TryFrom<String> for RateLimit {
    type Error = ParseLimitError;

    fn try_from(text: String) -> Result<RateLimit, ParseLimitError> {
        text.parse()
    }
}

impl From<RateLimit> for String {
    fn from(rate: RateLimit) -> String {
        rate.to_string()
    }
}

impl TryFrom<String> for RequestQuota {
    type Error = ParseLimitError;

    fn try_from(text: String) -> Result<RequestQuota, ParseLimitError> {
        text.parse()
    }
}

impl From<RequestQuota> for String {
    fn from(quota: RequestQuota) -> String {
        quota.to_string()
    }
}
