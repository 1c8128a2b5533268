//! `saggar predict --stream`: the answer's pieces as they come. A text is written as it is; numbers have a line a piece.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use crate::event_stream::{ServerEvent, next_event};
use crate::exit::{self, Failure};
use crate::output::Output;

/// Shows server-sent events until the one that ends them.
pub(super) fn show(events: impl Read, output: Output) -> Result<(), Failure> {
    let mut events = BufReader::new(events);
    let mut shown = Shown { output, text: None, names: BTreeSet::new(), in_line: false };
    while let Some((name, data)) = next(&mut events)? {
        match name.as_str() {
            "piece" => shown.piece(&data),
            "done" => {
                shown.done(data);
                return Ok(());
            }
            "error" => {
                shown.end_line();
                return Err(failure(&data));
            }
            // What a later server may say besides.
            _ => {}
        }
    }
    shown.end_line();
    Err(Failure::new(exit::UNREACHABLE, "broken_off", "the answer broke off before its end"))
}

fn failure(data: &Value) -> Failure {
    let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    let failure = Failure::new(exit::UNEXPECTED, &text("code"), text("error"));
    if text("hint").is_empty() { failure } else { failure.hint(text("hint")) }
}

/// The next event's name and data; none at the end.
fn next(events: &mut impl BufRead) -> Result<Option<(String, Value)>, Failure> {
    let event = next_event(events)
        .map_err(|error| Failure::new(exit::UNREACHABLE, "broken_off", format!("the answer: {error}")))?;
    let Some(ServerEvent { name, data, .. }) = event else { return Ok(None) };
    let data = serde_json::from_str(&data)
        .map_err(|error| Failure::new(exit::UNEXPECTED, "bad_answer", format!("an event is no JSON: {error}")))?;
    Ok(Some((name, data)))
}

struct Shown {
    output: Output,
    /// The output that is written as it is: the first text of which there was a piece.
    text: Option<String>,
    /// Outputs of which there were pieces.
    names: BTreeSet<String>,
    /// Whether something stands in the last line.
    in_line: bool,
}

impl Shown {
    /// Shows a piece.
    fn piece(&mut self, piece: &Value) {
        if self.output.json {
            self.output.json_line(&json!({ "piece": piece }));
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
                    self.in_line = !text.ends_with('\n');
                    self.output.text(text);
                }
                None => {
                    self.end_line();
                    let item = item.map(|item| format!("[{item}]")).unwrap_or_default();
                    self.output.line(&format!("{name}{item}  {value}"));
                }
            }
        }
    }

    /// Shows what no piece has shown.
    fn done(&mut self, answer: Value) {
        if self.output.json {
            self.output.json_line(&json!({ "done": answer }));
            return;
        }
        self.end_line();
        let rest = answer.as_object().into_iter().flatten().filter(|(name, _)| !self.names.contains(*name));
        super::print(&rest.map(|(name, value)| (name.clone(), value.clone())).collect(), None, self.output);
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            self.output.line("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_to_their_end() {
        let text =
            "event: piece\ndata: {\"text\": \"a: b\"}\n\n: a remark\nevent: done\r\ndata:{\"text\":\ndata: 1}\n\n";
        let mut events = text.as_bytes();
        assert_eq!(next(&mut events).unwrap(), Some(("piece".to_owned(), json!({ "text": "a: b" }))));
        assert_eq!(next(&mut events).unwrap(), Some(("done".to_owned(), json!({ "text": 1 }))));
        assert_eq!(next(&mut events).unwrap(), None);
        assert!(next(&mut &b"data: {\n\n"[..]).is_err());
    }

    #[test]
    fn an_answer_has_an_end() {
        let output = Output { json: false, quiet: true, colour: false };
        assert_eq!(show(&b""[..], output).unwrap_err().code, "broken_off");
        let error = b"event: error\ndata: {\"error\": \"it trapped\", \"code\": \"plugin_trap\", \"hint\": \"\"}\n\n";
        let failure = show(&error[..], output).unwrap_err();
        assert_eq!((&*failure.code, &*failure.message, failure.hint), ("plugin_trap", "it trapped", None));
        assert!(show(&b"event: done\ndata: {}\n\n"[..], output).is_ok());
    }
}
