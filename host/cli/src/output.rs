//! What people and programs see: data on standard output, everything else on standard error.

use std::io::Write;

use serde_json::Value;

use crate::exit::Failure;

/// How the user wants to be talked to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) colour: bool,
}

impl Output {
    /// Prints one JSON document.
    pub(crate) fn json(&self, value: &Value) {
        print(&format!("{value:#}\n"));
    }

    /// Prints one JSON document on one line, as streams do.
    pub(crate) fn json_line(&self, value: &Value) {
        print(&format!("{value}\n"));
    }

    /// Prints a line of data.
    pub(crate) fn line(&self, line: &str) {
        print(&format!("{line}\n"));
    }

    /// Writes data as it is, and shows it at once.
    pub(crate) fn raw(&self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Prints a line for people, unless they asked for quiet.
    pub(crate) fn note(&self, line: &str) {
        if !self.quiet && !self.json {
            eprintln!("{line}");
        }
    }

    /// Prints a table: upper-case headers, columns aligned at the left.
    pub(crate) fn table(&self, headers: &[&str], rows: &[Vec<String>]) {
        let mut widths: Vec<usize> = headers.iter().map(|header| header.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let row_of = |cells: &mut dyn Iterator<Item = &str>| {
            let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            self.line(padded.join("  ").trim_end());
        };
        row_of(&mut headers.iter().copied());
        for row in rows {
            row_of(&mut row.iter().map(String::as_str));
        }
    }

    /// A job's or version's state, coloured where colours are wanted; the word alone says it too.
    pub(crate) fn state(&self, state: &str) -> String {
        let code = match state {
            "SUCCEEDED" | "READY" | "OK" => "32",
            "FAILED" | "TIMED_OUT" => "31",
            "RUNNING" | "STARTING" | "LOADING" => "36",
            _ => return state.to_owned(),
        };
        if self.colour { format!("\x1b[{code}m{state}\x1b[0m") } else { state.to_owned() }
    }

    /// Prints an error where errors go.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            let error = serde_json::json!({
                "error": {"code": failure.code, "message": failure.message, "hint": failure.hint}
            });
            eprintln!("{error}");
            return;
        }
        eprintln!("saggar: {}", failure.message);
        if let Some(hint) = &failure.hint {
            eprintln!("  hint: {hint}");
        }
    }
}

/// Writes to standard output. A reader that has gone away, such as `head`, ends the command: nobody wants the rest.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
