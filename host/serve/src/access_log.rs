//! The access log: a line for each request when its response is sent, in JSON or in the Common Log Format. It has no
//! queries, bodies or keys, and never blocks a request ([`LineWriter`]).

use std::fmt::Write as _;
use std::time::Duration;

use saggar_telemetry::{LineWriter, RequestSummary};
use serde::Serialize;

/// The format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// A JSON object on each line.
    Json,
    /// The Common Log Format with the fields of the combined format, followed by `name=value`.
    Common,
}

/// An access log. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct AccessLog {
    writer: LineWriter,
    format: AccessLogFormat,
}

/// What is logged of a request, apart from its durations.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AccessLine {
    pub(crate) request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
    /// The client's address, or `None` for a socket file. Of an IPv6 address, the network.
    pub(crate) client: Option<String>,
    /// Who asked, or `None` if that was not found out.
    pub(crate) principal: Option<String>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) route: String,
    pub(crate) protocol: &'static str,
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grpc_status: Option<&'static str>,
    /// Bytes of the response's body.
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) referer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<String>,
}

/// A line in JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    #[serde(flatten)]
    line: &'a AccessLine,
    seconds: f64,
    #[serde(flatten)]
    prediction: Option<JsonPrediction<'a>>,
}

/// The members of a request that predicts. Durations are sums over its predictions.
#[derive(Serialize)]
struct JsonPrediction<'a> {
    model: &'a str,
    version: u64,
    predictions: u32,
    decode_seconds: f64,
    queue_seconds: f64,
    compute_seconds: f64,
    encode_seconds: f64,
}

impl AccessLog {
    /// Creates a log that writes to `writer`.
    pub fn new(writer: LineWriter, format: AccessLogFormat) -> AccessLog {
        AccessLog { writer, format }
    }

    /// Returns its writer.
    pub fn writer(&self) -> &LineWriter {
        &self.writer
    }

    pub(crate) fn write(&self, line: &AccessLine, predictions: &RequestSummary, time: Duration) {
        let now = jiff::Timestamp::now();
        let mut text = match self.format {
            AccessLogFormat::Json => json_line(line, predictions, time, now),
            AccessLogFormat::Common => common_line(line, predictions, time, now),
        };
        text.push('\n');
        self.writer.push(text.into_bytes());
    }
}

fn json_line(line: &AccessLine, predictions: &RequestSummary, time: Duration, now: jiff::Timestamp) -> String {
    let prediction = predictions.model.as_ref().map(|(model, version)| JsonPrediction {
        model,
        version: *version,
        predictions: predictions.predictions,
        decode_seconds: predictions.decode.as_secs_f64(),
        queue_seconds: predictions.queue.as_secs_f64(),
        compute_seconds: predictions.compute.as_secs_f64(),
        encode_seconds: predictions.encode.as_secs_f64(),
    });
    let line = JsonLine { time: format!("{now:.6}"), line, seconds: time.as_secs_f64(), prediction };
    serde_json::to_string(&line).expect("a line has text as keys")
}

fn common_line(line: &AccessLine, predictions: &RequestSummary, time: Duration, now: jiff::Timestamp) -> String {
    let quoted = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| escape(text));
    let plain = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| escape(text).replace(' ', "\\x20"));
    let mut text = format!(
        r#"{} - {} [{}] "{} {} {}" {} {} "{}" "{}" request_id={}"#,
        plain(line.client.as_ref()),
        plain(line.principal.as_ref()),
        now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        escape(&line.method),
        plain(Some(&line.path)),
        line.protocol,
        line.status,
        line.bytes,
        quoted(line.referer.as_ref()),
        quoted(line.user_agent.as_ref()),
        plain(Some(&line.request_id)),
    );
    // Writing to a string does not fail.
    if let Some(trace) = &line.trace_id {
        let _ = write!(text, " trace_id={trace}");
    }
    if let Some(code) = line.grpc_status {
        let _ = write!(text, " grpc_status={code}");
    }
    let _ = write!(text, " seconds={:.6}", time.as_secs_f64());
    if let Some((model, version)) = &predictions.model {
        let RequestSummary { decode, queue, compute, encode, .. } = predictions;
        let _ = write!(text, " model={model}@{version}");
        for (name, time) in [("decode", decode), ("queue", queue), ("compute", compute), ("encode", encode)] {
            let _ = write!(text, " {name}={:.6}", time.as_secs_f64());
        }
    }
    text
}

/// Escapes what ends a quoted field or a line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            char if char.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(escaped, "\\x{:02x}", u32::from(char));
            }
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AccessLine {
        AccessLine {
            request_id: "r-1 \"x\"\n".to_owned(),
            trace_id: None,
            client: Some("127.0.0.1".to_owned()),
            principal: Some("key:a b".to_owned()),
            method: "POST".to_owned(),
            path: "/predict\"".to_owned(),
            route: "/predict".to_owned(),
            protocol: "HTTP/1.1",
            status: 200,
            grpc_status: None,
            bytes: 12,
            referer: None,
            user_agent: Some("a\\b\u{1b}".to_owned()),
        }
    }

    #[test]
    fn a_common_line_cannot_be_forged_by_a_client() {
        let summary = RequestSummary { model: Some(("digits".to_owned(), 3)), ..RequestSummary::default() };
        let now = jiff::Timestamp::from_second(1_771_000_000).unwrap();
        let expected = concat!(
            r#"127.0.0.1 - key:a\x20b [13/Feb/2026:16:26:40 +0000] "POST /predict\" HTTP/1.1" 200 12 "-" "a\\b\x1b" "#,
            r#"request_id=r-1\x20\"x\"\x0a seconds=0.250000 model=digits@3 decode=0.000000 queue=0.000000 "#,
            "compute=0.000000 encode=0.000000"
        );
        assert_eq!(common_line(&line(), &summary, Duration::from_millis(250), now), expected);
    }

    #[test]
    fn a_json_line_has_the_prediction_only_if_there_is_one() {
        let now = jiff::Timestamp::from_second(1_771_000_000).unwrap();
        let parse = |summary: &RequestSummary| {
            let text = json_line(&line(), summary, Duration::from_millis(250), now);
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        };
        let plain = parse(&RequestSummary::default());
        assert_eq!(plain["time"], "2026-02-13T16:26:40.000000Z");
        assert_eq!((plain["seconds"].as_f64(), plain.get("model")), (Some(0.25), None));
        assert_eq!(plain["request_id"], "r-1 \"x\"\n");
        let model = Some(("digits".to_owned(), 3));
        let summary = RequestSummary { model, predictions: 1, queue: Duration::from_millis(2), ..Default::default() };
        let predicted = parse(&summary);
        assert_eq!((&predicted["model"], &predicted["version"]), (&"digits".into(), &3.into()));
        assert_eq!(predicted["queue_seconds"], 0.002);
    }
}
