//! Prints and follows a job's log, reconnecting until the job is over.

use std::io::{BufReader, Read};

use serde::Serialize;

use crate::client::ApiClient;
use crate::event_stream::next_event;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

/// Prints the existing log as it arrives.
pub(super) fn print_log(client: &ApiClient, output: CliOutput, path: &str) -> Result<(), CliError> {
    let mut stream = client.get_stream(path)?;
    let mut held = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let count = stream.read(&mut piece).map_err(|error| connection_lost_error(&error))?;
        held.extend_from_slice(&piece[..count]);
        let whole =
            if count == 0 { held.len() } else { held.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1) };
        let lines: Vec<u8> = held.drain(..whole).collect();
        print_lines(output, &String::from_utf8_lossy(&lines));
        if count == 0 {
            return Ok(());
        }
    }
}

/// Prints a log until its job is over. `path` is the log's path, with `follow_log` in its query.
pub(super) fn follow_log(client: &ApiClient, output: CliOutput, path: &str) -> Result<(), CliError> {
    follow_lines(client, output, path, |line| print_lines(output, &format!("{line}\n")))
}

/// A line of a log as JSON.
#[derive(Serialize)]
struct LogLine<'a> {
    line: &'a str,
}

fn print_lines(output: CliOutput, lines: &str) {
    if output.json {
        lines.lines().for_each(|line| output.print_json_line(&LogLine { line }));
    } else {
        output.print_text(lines);
    }
}

/// Passes each line of a log to `take` exactly once, until its job is over. After a lost connection, continues after
/// the last received line.
fn follow_lines(client: &ApiClient, output: CliOutput, path: &str, mut take: impl FnMut(&str)) -> Result<(), CliError> {
    let mut reconnect = ReconnectState::new(output);
    let mut last: Option<String> = None;
    let mut stream = client.get_events(path, None)?;
    loop {
        let mut events = BufReader::new(stream);
        let failure = loop {
            let event = match next_event(&mut events) {
                Ok(Some(event)) => event,
                Ok(None) => break connection_lost_error(&"the server went away"),
                Err(error) => break connection_lost_error(&error),
            };
            match event.name.as_str() {
                "line" => {
                    take(&event.data);
                    last = event.id.or(last);
                }
                "end" => return Ok(()),
                // Ignore events that a later server version may send.
                _ => {}
            }
        };
        reconnect.wait_for_retry(failure)?;
        stream = loop {
            match client.get_events(path, last.as_deref()) {
                Ok(stream) => break stream,
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.note_connected();
    }
}

fn connection_lost_error(reason: &dyn std::fmt::Display) -> CliError {
    CliError::new(exit::UNREACHABLE, "unreachable", format!("the log broke off: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads the head of a request.
    fn read_request_head(connection: &TcpStream) -> String {
        let lines = BufReader::new(connection).lines().map_while(Result::ok);
        lines.take_while(|line| !line.is_empty()).map(|line| line.to_ascii_lowercase() + "\n").collect()
    }

    fn send_events(mut connection: TcpStream, events: &str) -> String {
        let asked = read_request_head(&connection);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        // The last chunk, which marks the response as complete, is not sent.
        write!(connection, "{head}{:x}\r\n{events}\r\n", events.len()).unwrap();
        asked
    }

    #[test]
    fn a_followed_log_resumes_after_its_last_line_when_the_server_returns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let accept = || listener.accept().unwrap().0;
            let first = send_events(
                accept(),
                "id: 1:4\nevent: line\ndata: one\n\nid: 1:8\nevent: line\ndata: two\n\nid: 1:14\nevent: line\ndata: thr",
            );
            // A server that is stopping accepts connections but does not answer.
            read_request_head(&accept());
            let second = "id: 1:14\nevent: line\ndata: three\n\nevent: end\ndata: {}\n\n";
            (first, send_events(accept(), second))
        });
        let client = ApiClient::new(&url, None, None).unwrap();
        let output = CliOutput { json: false, quiet: true, colour: false };
        let mut lines = Vec::new();
        follow_lines(&client, output, "/api/v1/jobs/a-1/logs?follow=1", |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        let (first, second) = server.join().unwrap();
        assert!(first.contains("accept: text/event-stream") && !first.contains("last-event-id"), "{first}");
        assert!(second.contains("last-event-id: 1:8\n"), "{second}");
    }

    #[test]
    fn following_a_log_fails_at_once_if_the_server_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let client = ApiClient::new(&url, None, None).unwrap();
        let output = CliOutput { json: false, quiet: true, colour: false };
        let failure = follow_lines(&client, output, "/api/v1/jobs/a-1/logs?follow=1", |_| ()).unwrap_err();
        assert_eq!(failure.exit_code, exit::UNREACHABLE);
    }
}
