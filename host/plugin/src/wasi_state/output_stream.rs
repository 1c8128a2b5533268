//! Standard output and error: bytes in, lines out.

use std::collections::VecDeque;

use crate::limits::LOG_LINE_BYTES_MAX;

/// The last lines that are kept for the message of a trap.
const TAIL_LINES: usize = 8;

/// The bytes that a plugin wrote to one of its streams since the last end of a line, and the last lines.
#[derive(Debug, Default)]
pub(crate) struct GuestOutput {
    unfinished: Vec<u8>,
    tail: VecDeque<String>,
}

impl GuestOutput {
    /// Adds bytes, and returns the lines that they complete. A line that exceeds the limit of logs is complete when it
    /// reaches it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            for piece in part.chunks(LOG_LINE_BYTES_MAX) {
                self.unfinished.extend_from_slice(piece);
                if piece.ends_with(b"\n") || self.unfinished.len() >= LOG_LINE_BYTES_MAX {
                    lines.extend(self.finish());
                }
            }
        }
        lines
    }

    /// Returns the unfinished line, or `None` if every line is finished.
    pub(crate) fn finish(&mut self) -> Option<String> {
        if self.unfinished.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&self.unfinished);
        let line = text.trim_end_matches(['\n', '\r']).to_owned();
        self.unfinished.clear();
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line.clone());
        Some(line)
    }

    /// Returns the last lines since the previous call of this function.
    pub(crate) fn take_tail(&mut self) -> Vec<String> {
        self.tail.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_become_lines() {
        let mut output = GuestOutput::default();
        assert!(output.push(b"a").is_empty());
        assert_eq!(output.push(b"b\r\nc\n\nd"), ["ab", "c", ""]);
        assert_eq!(output.finish().as_deref(), Some("d"));
        assert_eq!(output.finish(), None);
        assert_eq!(output.take_tail(), ["ab", "c", "", "d"]);
        assert!(output.take_tail().is_empty());
        assert_eq!(output.push(b"\xff\n"), ["\u{fffd}"]);
    }

    #[test]
    fn output_without_line_ends_is_bounded() {
        let mut output = GuestOutput::default();
        let lines = output.push(&vec![b'x'; 3 * LOG_LINE_BYTES_MAX + 5]);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() == LOG_LINE_BYTES_MAX));
        for _ in 0..2 * TAIL_LINES {
            output.push(b"y\n");
        }
        assert_eq!(output.take_tail().len(), TAIL_LINES);
    }
}
