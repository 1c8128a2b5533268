//! `saggar predict --stream`: prints the pieces of an answer as they arrive. A text is written continuously; numbers
//! are printed one piece per line.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use serde::Serialize;
use serde_json::Value;

use crate::client::ForeignError;
use crate::event_stream::{ServerEvent, next_event};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Prints server-sent events until the final one.
pub(super) fn show_events(events: impl Read, output: CliOutput) -> Result<(), CliError> {
    let mut events = BufReader::new(events);
    let mut display = StreamDisplay { output, text: None, names: BTreeSet::new(), is_line_open: false };
    while let Some((name, data)) = next_json_event(&mut events)? {
        match name.as_str() {
            "piece" => display.show_piece(&data),
            "done" => {
                display.show_remaining(data);
                return Ok(());
            }
            "error" => {
                display.end_line();
                return Err(error_from_event(data));
            }
            // Ignore events that a later server version may send.
            _ => {}
        }
    }
    display.end_line();
    Err(CliError::new(exit::UNREACHABLE, "broken_off", "the answer broke off before its end"))
}

fn error_from_event(data: Value) -> CliError {
    let ForeignError { error, code, hint } = serde_json::from_value(data).unwrap_or_default();
    let failure = CliError::new(exit::UNEXPECTED, &code.unwrap_or_default(), error.unwrap_or_default());
    match hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// Returns the next event's name and data, or `None` at the end of the stream.
fn next_json_event(events: &mut impl BufRead) -> Result<Option<(String, Value)>, CliError> {
    let event = next_event(events)
        .map_err(|error| CliError::new(exit::UNREACHABLE, "broken_off", format!("the answer: {error}")))?;
    let Some(ServerEvent { name, data, .. }) = event else { return Ok(None) };
    let data = serde_json::from_str(&data)
        .map_err(|error| CliError::new(exit::UNEXPECTED, "bad_answer", format!("an event is not JSON: {error}")))?;
    Ok(Some((name, data)))
}

/// An event as a line of JSON: `{"piece": ...}` or `{"done": ...}`.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum StreamLine<'a> {
    Piece(&'a Value),
    Done(&'a Value),
}

struct StreamDisplay {
    output: CliOutput,
    /// The output that is written continuously: the first text that had a piece.
    text: Option<String>,
    /// Outputs that had pieces.
    names: BTreeSet<String>,
    /// Whether the last line is not finished.
    is_line_open: bool,
}

impl StreamDisplay {
    /// Prints a piece.
    fn show_piece(&mut self, piece: &Value) {
        if self.output.json {
            self.output.print_json_line(&StreamLine::Piece(piece));
            return;
        }
        let item = piece["item"].as_u64();
        let Some(object) = piece.as_object() else { return };
        for (name, value) in object.iter().filter(|(name, _)| *name != "item" || object.len() == 1) {
            self.names.insert(name.clone());
            let is_text = item.is_none() && self.text.as_ref().is_none_or(|text| text == name);
            match value.as_str().filter(|_| is_text) {
                Some(text) => {
                    self.text = Some(name.clone());
                    self.is_line_open = !text.ends_with('\n');
                    self.output.print_text(text);
                }
                None => {
                    self.end_line();
                    let item = item.map(|item| format!("[{item}]")).unwrap_or_default();
                    self.output.print_line(&format!("{name}{item}  {value}"));
                }
            }
        }
    }

    /// Prints the outputs that had no pieces.
    fn show_remaining(&mut self, answer: Value) {
        if self.output.json {
            self.output.print_json_line(&StreamLine::Done(&answer));
            return;
        }
        self.end_line();
        let rest = answer.as_object().into_iter().flatten().filter(|(name, _)| !self.names.contains(*name));
        super::print_outputs(&rest.map(|(name, value)| (name.clone(), value.clone())).collect(), None, self.output);
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_line_open) {
            self.output.print_line("");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn streamed_events_are_parsed_as_json() {
        let text =
            "event: piece\ndata: {\"text\": \"a: b\"}\n\n: a remark\nevent: done\r\ndata:{\"text\":\ndata: 1}\n\n";
        let mut events = text.as_bytes();
        assert_eq!(next_json_event(&mut events).unwrap(), Some(("piece".to_owned(), json!({ "text": "a: b" }))));
        assert_eq!(next_json_event(&mut events).unwrap(), Some(("done".to_owned(), json!({ "text": 1 }))));
        assert_eq!(next_json_event(&mut events).unwrap(), None);
        assert!(next_json_event(&mut &b"data: {\n\n"[..]).is_err());
    }

    #[test]
    fn a_stream_without_a_final_event_is_an_error() {
        let output = CliOutput { json: false, quiet: true, colour: false };
        assert_eq!(show_events(&b""[..], output).unwrap_err().code, "broken_off");
        let error = b"event: error\ndata: {\"error\": \"it trapped\", \"code\": \"plugin_trap\", \"hint\": \"\"}\n\n";
        let failure = show_events(&error[..], output).unwrap_err();
        assert_eq!((&*failure.code, &*failure.message, failure.hint), ("plugin_trap", "it trapped", None));
        assert!(show_events(&b"event: done\ndata: {}\n\n"[..], output).is_ok());
    }
}
