//! A parser of server-sent events. Source of the format: WHATWG HTML, section 9.2.

use std::io::{self, BufRead, Read};

/// Maximum bytes of one line of a stream.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// The id that a client sends to continue after a lost connection; `None` if the event has none.
    pub(crate) id: Option<String>,
    /// The event type; empty if the event has none.
    pub(crate) name: String,
    /// The data lines, joined by line feeds.
    pub(crate) data: String,
}

/// Reads the next complete event. Returns `None` at the end of the stream; an incomplete last event is dropped.
///
/// # Errors
/// Returns the errors of the reader.
pub(crate) fn next_event(stream: &mut impl BufRead) -> io::Result<Option<ServerEvent>> {
    let (mut event, mut has_data) = (ServerEvent::default(), false);
    loop {
        let mut line = String::new();
        if stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(None);
        }
        let line = line.trim_end_matches(['\n', '\r']);
        if line.is_empty() && has_data {
            return Ok(Some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut event.name),
            "data" => {
                if has_data {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                has_data = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, name: &str, data: &str) -> Option<ServerEvent> {
        Some(ServerEvent { id: id.map(str::to_owned), name: name.to_owned(), data: data.to_owned() })
    }

    #[test]
    fn server_sent_events_are_parsed_until_the_stream_ends() {
        let text =
            "id: 1:7\nevent: line\ndata:  a: b \n\n: a remark\n\nevent: line\r\ndata:\r\n\r\ndata:{\ndata: 1}\n\n";
        let mut stream = text.as_bytes();
        assert_eq!(next_event(&mut stream).unwrap(), event(Some("1:7"), "line", " a: b "));
        assert_eq!(next_event(&mut stream).unwrap(), event(None, "line", ""));
        assert_eq!(next_event(&mut stream).unwrap(), event(None, "", "{\n1}"));
        assert_eq!(next_event(&mut stream).unwrap(), None);
    }

    #[test]
    fn an_incomplete_server_sent_event_is_dropped() {
        for cut in ["id: 1:7\nevent: line\nda", "event: line\ndata: half", "event: line\ndata: whole\n"] {
            assert_eq!(next_event(&mut cut.as_bytes()).unwrap(), None, "{cut:?}");
        }
    }
}
