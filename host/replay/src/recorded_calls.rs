//! Reads recordings: the calls of a range of steps, by what they are about.

use std::collections::HashMap;
use std::fmt;

use crate::host_call::HostCall;
use crate::recorder::{FORMAT_VERSION, RecordedCall, RecordingHeader};

/// What identifies a call: the boundary that it follows, its subject, and which of the calls of that subject after that
/// boundary it is, from 0.
pub(crate) type CallKey = (Option<u64>, String, u32);

/// The recorded calls of a range of steps.
#[derive(Debug, Default)]
pub struct RecordedCalls {
    /// The devices that computed, each once.
    devices: Vec<String>,
    calls: HashMap<CallKey, HostCall>,
    /// The attempt that the range begins in.
    attempt: Option<u32>,
}

/// A recording that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// The line, from 1.
    line: usize,
    reason: String,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the recording: {}", self.line, self.reason)
    }
}

impl std::error::Error for RecordingError {}

impl RecordedCalls {
    /// Adds the calls of an attempt that follow boundaries of the steps `from` to `to`, and those before the first
    /// boundary. Attempts are added in their order: the calls of a later attempt replace those of an earlier one. A last
    /// line without an end is ignored, because an attempt that was killed can leave one.
    ///
    /// # Errors
    /// If a line is not a call, or the format is of another version.
    pub fn add_attempt(&mut self, recording: &str, from: u64, to: Option<u64>) -> Result<(), RecordingError> {
        let complete = recording.rfind('\n').map_or("", |end| &recording[..=end]);
        let mut lines = complete.lines().enumerate();
        let Some((_, first)) = lines.next() else { return Ok(()) };
        let header: RecordingHeader = read_line(0, first)?;
        if header.recording != FORMAT_VERSION {
            let reason = format!("version {} of the format, not {FORMAT_VERSION}", header.recording);
            return Err(RecordingError { line: 1, reason });
        }
        let mut occurrences: HashMap<(Option<u64>, String), u32> = HashMap::new();
        let mut covers_start = false;
        for (index, line) in lines {
            let RecordedCall { after_step, call } = read_line(index, line)?;
            let is_within = after_step.is_none_or(|step| step >= from && to.is_none_or(|to| step <= to));
            if !is_within {
                continue;
            }
            covers_start |= after_step == Some(from);
            let subject = call.subject();
            let occurrence = occurrences.entry((after_step, subject.clone())).or_default();
            self.calls.insert((after_step, subject, *occurrence), call);
            *occurrence += 1;
        }
        if covers_start {
            self.attempt = Some(header.attempt);
        }
        if !self.devices.contains(&header.device) {
            self.devices.push(header.device);
        }
        Ok(())
    }

    /// Returns whether no call was recorded.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the newest attempt that recorded the start of the range; `None` if none did.
    pub fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    /// Returns the devices that computed.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Returns a recorded call.
    pub(crate) fn find(&self, key: &CallKey) -> Option<&HostCall> {
        self.calls.get(key)
    }
}

fn read_line<T: serde::de::DeserializeOwned>(index: usize, line: &str) -> Result<T, RecordingError> {
    serde_json::from_str(line).map_err(|error| RecordingError { line: index + 1, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(attempt: u32, calls: &[(Option<u64>, HostCall)]) -> String {
        let header = serde_json::to_string(&RecordingHeader::new(attempt, "cpu".to_owned())).unwrap();
        let calls = calls.iter().map(|(after_step, call)| {
            serde_json::to_string(&RecordedCall { after_step: *after_step, call: call.clone() }).unwrap()
        });
        [header].into_iter().chain(calls).map(|line| line + "\n").collect()
    }

    fn output(content: &str) -> HostCall {
        HostCall::WriteOutput { path: "a".to_owned(), content: content.to_owned() }
    }

    #[test]
    fn calls_of_the_range_are_found_and_later_attempts_replace_earlier_ones() {
        let mut calls = RecordedCalls::default();
        let first = recording(
            1,
            &[(None, output("setup")), (Some(0), output("0")), (Some(10), output("old")), (Some(10), output("second"))],
        );
        calls.add_attempt(&first, 10, Some(20)).unwrap();
        calls.add_attempt(&recording(2, &[(Some(10), output("new")), (Some(30), output("30"))]), 10, Some(20)).unwrap();
        let find = |step, occurrence| calls.find(&(step, output("").subject(), occurrence)).cloned();
        assert_eq!(find(None, 0), Some(output("setup")));
        assert_eq!(find(Some(0), 0), None, "before the range");
        assert_eq!(find(Some(10), 0), Some(output("new")));
        assert_eq!(find(Some(10), 1), Some(output("second")));
        assert_eq!(find(Some(30), 0), None, "after the range");
        assert_eq!((calls.attempt(), calls.devices()), (Some(2), &["cpu".to_owned()][..]));
    }

    #[test]
    fn a_killed_attempt_may_leave_an_incomplete_line() {
        let whole = recording(1, &[(Some(0), output("0"))]);
        for end in 0..=whole.len() {
            let mut calls = RecordedCalls::default();
            calls.add_attempt(&whole[..end], 0, None).unwrap();
            assert_eq!(calls.is_empty(), end < whole.len());
        }
    }

    #[test]
    fn lines_that_are_no_calls_are_named() {
        let mut calls = RecordedCalls::default();
        let whole = recording(1, &[(Some(0), output("0"))]) + "{\"call\": \"dance\"}\n";
        let error = calls.add_attempt(&whole, 0, None).unwrap_err().to_string();
        assert!(error.starts_with("line 3 of the recording: "), "{error}");
        let newer = whole.replace("\"recording\":1", "\"recording\":2");
        let error = calls.add_attempt(&newer, 0, None).unwrap_err().to_string();
        assert_eq!(error, "line 1 of the recording: version 2 of the format, not 1");
    }
}
