//! Long work shown while it goes on: a moving bar on a terminal, a plain line now and then elsewhere; nothing where the
//! user asked for quiet or for JSON. All of it goes to standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::escape;
use crate::output::Output;
use crate::units;

/// How often a plain line says how far the work has come.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Bytes,
    Steps,
}

/// How far a long work has come.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    unit: Unit,
    done: u64,
    total: u64,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines { output: Output, last: Instant },
}

impl Progress {
    /// Work on `total` bytes.
    pub(crate) fn of_bytes(what: impl Into<String>, total: u64, output: Output) -> Progress {
        Progress::new(what.into(), Unit::Bytes, total, output)
    }

    /// Work in steps whose number is not known yet.
    pub(crate) fn of_steps(what: impl Into<String>, output: Output) -> Progress {
        Progress::new(what.into(), Unit::Steps, 0, output)
    }

    fn new(what: String, unit: Unit, total: u64, output: Output) -> Progress {
        let shown = if output.quiet || output.json {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            let template = match unit {
                Unit::Bytes => "{prefix} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                Unit::Steps => "{prefix} [{bar:32}] {pos}/{len} steps {eta} {msg}",
            };
            let style = ProgressStyle::with_template(template).expect("the template is well formed");
            Shown::Bar(ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_prefix(escape::line(&what)))
        } else {
            Shown::Lines { output, last: Instant::now() }
        };
        Progress { what, unit, done: 0, total, shown }
    }

    /// So much more is done.
    pub(crate) fn advance(&mut self, more: u64) {
        self.set(self.done + more, self.total, "");
    }

    /// `done` of `total` is done; `detail` stands beside it.
    pub(crate) fn set(&mut self, done: u64, total: u64, detail: &str) {
        (self.done, self.total) = (done, total);
        let line = self.line(detail);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(escape::line(detail));
            }
            // Nothing can be said of a whole that is not known.
            Shown::Lines { output, last } if total > 0 && last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                output.note(&line);
            }
            Shown::Lines { .. } => {}
        }
    }

    /// A line among the progress, such as a change of state.
    pub(crate) fn note(&self, line: &str) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => bar.println(escape::line(line)),
            Shown::Lines { output, .. } => output.note(line),
        }
    }

    fn line(&self, detail: &str) -> String {
        let (what, percent) = (&self.what, (self.done * 100).checked_div(self.total).unwrap_or(0));
        let count = match self.unit {
            Unit::Bytes => format!("{} of {}", units::show_bytes(self.done), units::show_bytes(self.total)),
            Unit::Steps => format!("{} of {} steps", self.done, self.total),
        };
        format!("{what} {count} ({percent} %) {detail}").trim_end().to_owned()
    }
}

impl Drop for Progress {
    /// The bar makes way for the result.
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_what_how_much_and_how_far() {
        let output = Output { json: false, quiet: true, colour: false };
        let mut bytes = Progress::of_bytes("sending", 4 << 20, output);
        bytes.advance(1 << 20);
        assert_eq!(bytes.line(""), "sending 1.0 MiB of 4.0 MiB (25 %)");
        let mut steps = Progress::of_steps("digits-1", output);
        assert_eq!(steps.line(""), "digits-1 0 of 0 steps (0 %)");
        steps.set(30, 40, "loss 0.1250");
        assert_eq!(steps.line("loss 0.1250"), "digits-1 30 of 40 steps (75 %) loss 0.1250");
    }
}
