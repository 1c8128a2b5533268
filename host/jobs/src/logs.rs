//! Attempt logs, written by the supervisor line by line as events arrive, so that they survive any failure of the
//! worker ([`saggar_store::JobFiles`] stores them). Each stored line is `TIMESTAMP text`, with times in UTC that never decrease.

use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use saggar_project::{UnitError, units};
use saggar_store::{AttemptLog, JobFiles, JobLease};

use crate::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX};

/// Bytes of a stored timestamp, `2026-11-21T12:03:13.076Z`, with the space after it.
pub const TIMESTAMP_BYTES: usize = 25;

/// The time from which on lines are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSince {
    /// This long ago, by the clock of the log's writer.
    Ago(Duration),
    /// At this time, in milliseconds since 1970.
    At(i64),
}

impl FromStr for LogSince {
    type Err = UnitError;

    /// Parses `10m`, `2026-11-21T12:03:13Z` (RFC 3339) or `1795262593076`.
    fn from_str(text: &str) -> Result<LogSince, UnitError> {
        if let Ok(ago) = units::parse_duration(text) {
            return Ok(LogSince::Ago(ago));
        }
        let time = match text.parse() {
            Ok(ms) => jiff::Timestamp::from_millisecond(ms),
            Err(_) => text.parse(),
        };
        time.map(|time| LogSince::At(time.as_millisecond())).map_err(|_| UnitError::Since { text: text.to_owned() })
    }
}

impl LogSince {
    /// Returns the smallest timestamp of requested lines. Timestamps have one length and one zone, so they are ordered
    /// as text.
    pub fn min_timestamp(self, now_ms: u64) -> String {
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        timestamp(match self {
            LogSince::Ago(ago) => now_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)).max(0),
            LogSince::At(ms) => ms.max(0),
        })
    }
}

/// A writer that appends to one attempt's log.
#[derive(Debug)]
pub struct LogWriter {
    log: Box<dyn AttemptLog>,
    bytes_max: u64,
    last_ms: i64,
    dropped_lines: u64,
}

impl LogWriter {
    /// Opens the attempt's log, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn open(files: &dyn JobFiles, job: &str, attempt: u32) -> io::Result<LogWriter> {
        Ok(LogWriter::new(files.open_log(job, attempt)?))
    }

    /// Opens the log of a lease's attempt, which refuses lines once the lease is over if servers share it.
    ///
    /// # Errors
    /// Returns the errors of the file system, the object store and the records.
    pub(crate) fn open_leased(files: &dyn JobFiles, lease: &JobLease) -> io::Result<LogWriter> {
        Ok(LogWriter::new(files.open_leased_log(lease)?))
    }

    fn new(log: Box<dyn AttemptLog>) -> LogWriter {
        LogWriter { log, bytes_max: LOG_BYTES_MAX, last_ms: 0, dropped_lines: 0 }
    }

    /// Writes one line at `now_ms` (milliseconds since 1970). Control characters become spaces and a long line is cut,
    /// so that a plugin cannot forge another line.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write_line(&mut self, now_ms: i64, text: &str) -> io::Result<()> {
        if self.log.bytes() >= self.bytes_max {
            self.dropped_lines += 1;
            return Ok(());
        }
        self.last_ms = self.last_ms.max(now_ms);
        let mut line = format!("{} ", timestamp(self.last_ms));
        let end = text.floor_char_boundary(LOG_LINE_BYTES_MAX);
        line.extend(text[..end].chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }));
        if end < text.len() {
            line.push('…');
        }
        line.push('\n');
        self.log.append(line.as_bytes())
    }

    /// Shows all lines to readers.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }

    /// Syncs the log to disk, after a line with the number of dropped lines if there are any.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn finish(&mut self, now_ms: i64) -> io::Result<()> {
        if self.dropped_lines > 0 {
            self.last_ms = self.last_ms.max(now_ms);
            let line = format!("{} {} lines left out: the log is full\n", timestamp(self.last_ms), self.dropped_lines);
            self.log.append(line.as_bytes())?;
            self.dropped_lines = 0;
        }
        self.log.sync()
    }
}

/// Reads complete lines of an attempt's log from byte `offset` on, at most `bytes_max`. Returns them and the offset after
/// them; a log that does not exist yet is empty.
///
/// # Errors
/// Returns the errors of the file system.
pub fn read_from(
    files: &dyn JobFiles,
    job: &str,
    attempt: u32,
    offset: u64,
    bytes_max: u64,
) -> io::Result<(String, u64)> {
    let mut bytes = files.read_log(job, attempt, offset..offset.saturating_add(bytes_max))?;
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    bytes.truncate(whole);
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((text, offset + whole as u64))
}

/// Reads the last complete lines of an attempt's log before byte `end`, which is the end of a line or past the end of
/// the log: at most `bytes_max` bytes, unless a single line is longer. Returns them with their byte range; a log that
/// does not exist yet is empty.
///
/// # Errors
/// Returns the errors of the file system.
pub fn read_backward(
    files: &dyn JobFiles,
    job: &str,
    attempt: u32,
    end: u64,
    bytes_max: u64,
) -> io::Result<(String, Range<u64>)> {
    let end = end.min(files.log_bytes(job, attempt)?);
    let mut bytes_max = bytes_max.max(1);
    loop {
        // One more byte shows whether a line begins at the start of the chunk.
        let begin = end.saturating_sub(bytes_max).saturating_sub(1);
        let mut bytes = files.read_log(job, attempt, begin..end)?;
        let is_end = |byte: &u8| *byte == b'\n';
        let first = if begin == 0 { Some(0) } else { bytes.iter().position(is_end).map(|end| end + 1) };
        let last = bytes.iter().rposition(is_end).map_or(0, |end| end + 1);
        if let Some(first) = first.filter(|first| begin == 0 || *first < last) {
            bytes.truncate(last);
            bytes.drain(..first.min(last));
            let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            return Ok((text, begin + first as u64..begin + last as u64));
        }
        bytes_max = bytes_max.saturating_mul(2);
    }
}

/// Formats a time as RFC 3339 in UTC with milliseconds. Times outside the range of `jiff` are formatted as 1970.
pub fn timestamp(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use saggar_store::LocalJobFiles;

    use super::*;

    #[test]
    fn log_lines_keep_their_timestamps_and_control_characters_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(&LocalJobFiles::new(dir.path()), "j", 1).unwrap();
        log.write_line(1_795_262_593_076, "first\nsecond").unwrap();
        log.write_line(1_795_262_593_000, "the clock went back").unwrap();
        log.finish(0).unwrap();
        let (text, end) = read_from(&LocalJobFiles::new(dir.path()), "j", 1, 0, u64::MAX).unwrap();
        assert_eq!(text, "2026-11-21T12:03:13.076Z first second\n2026-11-21T12:03:13.076Z the clock went back\n");
        assert_eq!(text.as_bytes()[TIMESTAMP_BYTES - 1], b' ');
        assert_eq!(read_from(&LocalJobFiles::new(dir.path()), "j", 1, end, u64::MAX).unwrap(), (String::new(), end));
    }

    #[test]
    fn log_timestamps_never_go_back_when_the_clock_does() {
        let dir = tempfile::tempdir().unwrap();
        let noon = 1_795_262_400_000;
        let mut log = LogWriter::open(&LocalJobFiles::new(dir.path()), "j", 1).unwrap();
        log.write_line(noon, "at noon").unwrap();
        log.write_line(noon - 3_600_000, "an hour before").unwrap();
        log.bytes_max = 0;
        log.write_line(noon - 3_600_000, "left out").unwrap();
        log.finish(noon - 3_600_000).unwrap();
        let (text, _) = read_from(&LocalJobFiles::new(dir.path()), "j", 1, 0, u64::MAX).unwrap();
        let at = "2026-11-21T12:00:00.000Z";
        let expected = format!("{at} at noon\n{at} an hour before\n{at} 1 lines left out: the log is full\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(&LocalJobFiles::new(dir.path()), "j", 1).unwrap();
        log.write_line(0, &"ä".repeat(LOG_LINE_BYTES_MAX)).unwrap();
        let (text, _) = read_from(&LocalJobFiles::new(dir.path()), "j", 1, 0, u64::MAX).unwrap();
        assert_eq!(text.chars().count(), TIMESTAMP_BYTES + LOG_LINE_BYTES_MAX / 2 + 2);
    }

    #[test]
    fn log_since_takes_an_age_a_timestamp_or_milliseconds() {
        let now = 1_795_262_593_076;
        let stamp = |text: &str| {
            text.parse::<LogSince>().map(|since| since.min_timestamp(now)).map_err(|error| error.to_string())
        };
        assert_eq!(stamp("10m").unwrap(), "2026-11-21T11:53:13.076Z");
        assert_eq!(stamp("2026-11-21T13:03:13.5+01:00").unwrap(), "2026-11-21T12:03:13.500Z");
        assert_eq!(stamp("1795262593076").unwrap(), "2026-11-21T12:03:13.076Z");
        assert_eq!(stamp("99999d").unwrap(), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp("1960-01-01T00:00:00Z").unwrap(), "1970-01-01T00:00:00.000Z");
        for bad in ["", "yesterday", "10x", "2026-11-21", "99999999999999999", "-5m"] {
            assert!(stamp(bad).is_err(), "{bad}");
        }
        let refused = stamp("soon").unwrap_err();
        assert_eq!(
            refused,
            "invalid time \"soon\": expected a time ago, such as 10m, or a timestamp, such as 2026-11-21T12:03:13Z"
        );
    }

    #[test]
    fn a_log_is_read_backward_from_any_line() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalJobFiles::new(dir.path());
        assert_eq!(read_backward(&files, "j", 1, u64::MAX, 9).unwrap(), (String::new(), 0..0));
        drop(files.open_log("j", 1).unwrap());
        let path = dir.path().join("jobs/j/attempt-1.log");
        let check = |content: &str, end: u64, bytes_max: u64, expected: &str, range: Range<u64>| {
            std::fs::write(&path, content).unwrap();
            assert_eq!(
                read_backward(&files, "j", 1, end, bytes_max).unwrap(),
                (expected.to_owned(), range),
                "{content:?} {end}"
            );
        };
        check("", u64::MAX, 9, "", 0..0);
        check("half", u64::MAX, 9, "", 0..0);
        check("a long half", u64::MAX, 3, "", 0..0);
        check("one\nzwölf\nthree\nfo", u64::MAX, 99, "one\nzwölf\nthree\n", 0..17);
        check("one\nzwölf\nthree\nfo", u64::MAX, 10, "three\n", 11..17);
        // A line that is longer than a chunk is returned as a whole.
        check("one\nzwölf\nthree\nfo", u64::MAX, 1, "three\n", 11..17);
        check("one\nzwölf\nthree\n", 11, 8, "zwölf\n", 4..11);
        check("one\nzwölf\nthree\n", 11, 7, "zwölf\n", 4..11);
        check("one\nzwölf\nthree\n", 4, 2, "one\n", 0..4);
        check("one\n\n\n", u64::MAX, 1, "\n", 5..6);
        check("one\n", 0, 2, "", 0..0);
    }

    #[test]
    fn an_incomplete_last_line_is_not_read_yet() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalJobFiles::new(dir.path());
        files.open_log("j", 1).unwrap().append(b"one\ntw").unwrap();
        assert_eq!(read_from(&files, "j", 1, 0, u64::MAX).unwrap(), ("one\n".to_owned(), 4));
    }
}
