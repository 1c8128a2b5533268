//! Progress of long work: a bar on a terminal, otherwise a plain line at intervals, and nothing in quiet or JSON mode.
//! All of it goes to standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::escape;
use crate::output::CliOutput;
use crate::units;

/// Time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The unit of progress.
#[derive(Clone, Copy, Debug)]
enum ProgressUnit {
    Bytes,
    Steps,
}

/// A progress display.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    what: String,
    unit: ProgressUnit,
    done: u64,
    total: u64,
    renderer: ProgressRenderer,
}

#[derive(Debug)]
enum ProgressRenderer {
    Nothing,
    Bar(ProgressBar),
    Lines { output: CliOutput, last: Instant },
}

impl ProgressDisplay {
    /// Returns a display for work on `total` bytes.
    pub(crate) fn for_bytes(what: impl Into<String>, total: u64, output: CliOutput) -> ProgressDisplay {
        ProgressDisplay::new(what.into(), ProgressUnit::Bytes, total, output)
    }

    /// Returns a display for work in steps whose number is not known yet.
    pub(crate) fn for_steps(what: impl Into<String>, output: CliOutput) -> ProgressDisplay {
        ProgressDisplay::new(what.into(), ProgressUnit::Steps, 0, output)
    }

    fn new(what: String, unit: ProgressUnit, total: u64, output: CliOutput) -> ProgressDisplay {
        let renderer = if output.quiet || output.json {
            ProgressRenderer::Nothing
        } else if std::io::stderr().is_terminal() {
            let template = match unit {
                ProgressUnit::Bytes => "{prefix} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                ProgressUnit::Steps => "{prefix} [{bar:32}] {pos}/{len} steps {eta} {msg}",
            };
            let style = ProgressStyle::with_template(template).expect("the template is well formed");
            ProgressRenderer::Bar(
                ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_prefix(escape::escape_line(&what)),
            )
        } else {
            ProgressRenderer::Lines { output, last: Instant::now() }
        };
        ProgressDisplay { what, unit, done: 0, total, renderer }
    }

    /// Advances the progress by `more`.
    pub(crate) fn advance(&mut self, more: u64) {
        self.set(self.done + more, self.total, "");
    }

    /// Sets the progress to `done` of `total`; `detail` is shown beside it.
    pub(crate) fn set(&mut self, done: u64, total: u64, detail: &str) {
        (self.done, self.total) = (done, total);
        let line = self.format_line(detail);
        match &mut self.renderer {
            ProgressRenderer::Nothing => {}
            ProgressRenderer::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(escape::escape_line(detail));
            }
            // Without a known total there is no progress to print.
            ProgressRenderer::Lines { output, last } if total > 0 && last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                output.print_note(&line);
            }
            ProgressRenderer::Lines { .. } => {}
        }
    }

    /// Prints a line above the progress, such as a state change.
    pub(crate) fn print_note(&self, line: &str) {
        match &self.renderer {
            ProgressRenderer::Nothing => {}
            ProgressRenderer::Bar(bar) => bar.println(escape::escape_line(line)),
            ProgressRenderer::Lines { output, .. } => output.print_note(line),
        }
    }

    fn format_line(&self, detail: &str) -> String {
        let (what, percent) = (&self.what, (self.done * 100).checked_div(self.total).unwrap_or(0));
        let count = match self.unit {
            ProgressUnit::Bytes => format!("{} of {}", units::format_bytes(self.done), units::format_bytes(self.total)),
            ProgressUnit::Steps => format!("{} of {} steps", self.done, self.total),
        };
        format!("{what} {count} ({percent} %) {detail}").trim_end().to_owned()
    }
}

impl Drop for ProgressDisplay {
    /// Removes the bar before the result is printed.
    fn drop(&mut self) {
        if let ProgressRenderer::Bar(bar) = &self.renderer {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_has_label_count_and_percent() {
        let output = CliOutput { json: false, quiet: true, colour: false };
        let mut bytes = ProgressDisplay::for_bytes("sending", 4 << 20, output);
        bytes.advance(1 << 20);
        assert_eq!(bytes.format_line(""), "sending 1.0 MiB of 4.0 MiB (25 %)");
        let mut steps = ProgressDisplay::for_steps("digits-1", output);
        assert_eq!(steps.format_line(""), "digits-1 0 of 0 steps (0 %)");
        steps.set(30, 40, "loss 0.1250");
        assert_eq!(steps.format_line("loss 0.1250"), "digits-1 30 of 40 steps (75 %) loss 0.1250");
    }
}
