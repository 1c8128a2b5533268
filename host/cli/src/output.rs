//! Output of the commands: data goes to standard output, everything else to standard error. All printed text is escaped
//! here, because names and messages come from plugins and other users.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::escape;
use crate::exit::{self, CliError};

/// The user's output settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CliOutput {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) colour: bool,
}

impl CliOutput {
    /// Prints one JSON document.
    pub(crate) fn print_json(&self, document: &impl Serialize) {
        let text = serde_json::to_string_pretty(document).expect("documents have text as keys");
        print(&escape::escape_json(&format!("{text}\n")));
    }

    /// Prints one JSON document as itself, and any other number of them as a list.
    pub(crate) fn print_json_or_list(&self, documents: &[impl Serialize]) {
        match documents {
            [one] => self.print_json(one),
            all => self.print_json(&all),
        }
    }

    /// Prints one JSON document on one line, as in a stream.
    pub(crate) fn print_json_line(&self, document: &impl Serialize) {
        let text = serde_json::to_string(document).expect("documents have text as keys");
        print(&escape::escape_json(&format!("{text}\n")));
    }

    /// Prints a line of data.
    pub(crate) fn print_line(&self, line: &str) {
        print(&format!("{}\n", escape::escape_line(line)));
    }

    /// Prints a line of data during work that changes something. The work continues even if the reader closed the pipe.
    pub(crate) fn print_line_ignoring_errors(&self, line: &str) {
        let _ = write(&format!("{}\n", escape::escape_line(line)));
    }

    /// Prints text of several lines, or part of a line, and flushes it.
    pub(crate) fn print_text(&self, text: &str) {
        print(&escape::escape_text(text));
    }

    /// Prints a chart, whose text has no control characters but line ends and colours.
    pub(crate) fn print_chart(&self, chart: &str) {
        print(chart);
    }

    /// Clears the screen before a listing that replaces another one. Does nothing if standard output is not a terminal.
    pub(crate) fn clear_screen(&self) {
        if std::io::stdout().is_terminal() {
            // Moves the cursor to the upper left corner, and erases the display and the scrollback. Source: ECMA-48,
            // 8.3.21 and 8.3.39; xterm.
            print("\x1b[H\x1b[2J\x1b[3J");
        }
    }

    /// Prints a note to standard error, unless the output is quiet.
    pub(crate) fn print_note(&self, line: &str) {
        if !self.quiet && !self.json {
            print_to_stderr(line);
        }
    }

    /// Prints a table: upper-case headers, left-aligned columns.
    pub(crate) fn print_table(&self, headers: &[&str], rows: &[Vec<String>]) {
        format_table(headers, rows).iter().for_each(|line| self.print_line(line));
    }

    /// Prints a table to standard error, for people only.
    pub(crate) fn print_table_to_stderr(&self, headers: &[&str], rows: &[Vec<String>]) {
        format_table(headers, rows).iter().for_each(|line| print_to_stderr(line));
    }

    /// Formats the state of a job or version, coloured if colours are enabled.
    pub(crate) fn format_state(&self, state: &str) -> String {
        let code = match state {
            "SUCCEEDED" | "READY" | "OK" => "32",
            "FAILED" | "TIMED_OUT" => "31",
            "RUNNING" | "STARTING" | "LOADING" => "36",
            _ => return state.to_owned(),
        };
        if self.colour { format!("\x1b[{code}m{state}\x1b[0m") } else { state.to_owned() }
    }

    /// Prints an error to standard error.
    pub(crate) fn print_error(&self, failure: &CliError) {
        if self.json {
            let error = ErrorLine {
                error: CommandError { code: &failure.code, message: &failure.message, hint: failure.hint.as_deref() },
            };
            let error = serde_json::to_string(&error).expect("documents have text as keys");
            print_to_stderr(&escape::escape_json(&error));
            return;
        }
        print_to_stderr(&format!("saggar: {}", escape::escape_text(&failure.message)));
        if let Some(hint) = &failure.hint {
            print_to_stderr(&format!("  hint: {}", escape::escape_text(hint)));
        }
    }
}

/// An error as JSON.
#[derive(Serialize)]
struct ErrorLine<'a> {
    error: CommandError<'a>,
}

#[derive(Serialize)]
struct CommandError<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

/// Writes to standard output. If the reader closed the pipe, such as `head`, the command ends, because the rest is not
/// needed. Any other write error ends the command with an error.
fn print(text: &str) {
    match write(text) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            print_to_stderr(&format!("saggar: standard output: {error}"));
            std::process::exit(exit::UNEXPECTED);
        }
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints one or more lines to standard error. Write errors are ignored.
pub(crate) fn print_to_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", escape::escape_text(line));
}

/// Formats the lines of a table, headers first.
fn format_table(headers: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape::escape_line(cell)).collect()).collect();
    let mut widths: Vec<usize> = headers.iter().map(|header| header.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(line(&mut headers.iter().copied())).chain(rows).collect()
}

/// Asks for confirmation before a removal. Without a terminal, only `yes` confirms.
///
/// # Errors
/// Returns `not_agreed` if not confirmed; nothing is removed.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let message = format!("{question} There is no terminal to ask on, so nothing was removed");
        return Err(CliError::new(exit::USAGE, "not_agreed", message).with_hint("use --yes in scripts"));
    }
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{} [y/N] ", escape::escape_text(question)).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::new(exit::INTERRUPTED, "not_agreed", "nothing was removed"))
}
