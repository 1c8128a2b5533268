//! Requests and answers of HTTP/1.1 with a length, as bytes.

use std::io::{Read, Write};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct RawRequest {
    pub(super) method: String,
    /// The path with the query.
    pub(super) target: String,
    /// The lines of the header fields.
    pub(super) fields: Vec<String>,
    pub(super) body: Vec<u8>,
}

impl RawRequest {
    /// Reads a request. Returns `None` if the connection ends.
    pub(super) fn read(from: &mut impl Read) -> Option<RawRequest> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if from.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.lines();
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let (method, target) = (first.next()?, first.next()?);
        let fields: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let length = fields.iter().find_map(|line| field_value(line, "content-length")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        Some(RawRequest { method, target, fields, body })
    }

    /// Returns whether it has this header field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|line| field_value(line, name).is_some())
    }

    /// Removes a header field.
    pub(super) fn remove(&mut self, name: &str) {
        self.fields.retain(|line| field_value(line, name).is_none());
    }

    /// Sends it to a server of this machine and returns the whole answer.
    pub(super) fn send(&self, port: u16) -> std::io::Result<Vec<u8>> {
        let mut server = std::net::TcpStream::connect(("127.0.0.1", port))?;
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", self.method, self.target);
        for line in self.fields.iter().filter(|line| field_value(line, "connection").is_none()) {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        server.write_all(head.as_bytes())?;
        server.write_all(&self.body)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

fn field_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (field, value) = line.split_once(':')?;
    field.eq_ignore_ascii_case(name).then(|| value.trim())
}
