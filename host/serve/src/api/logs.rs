//! `GET /api/v1/jobs/{job}/logs`: the log lines of one attempt, or of all attempts in sequence, as they are written.
//!
//! If the client accepts server-sent events, each line has an id of its attempt and the offset after the line, so that
//! a reconnecting client resumes at that position. The stream ends with an `end` event.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use saggar_jobs::logs::{LogSince, TIMESTAMP_BYTES};
use saggar_jobs::{JobError, JobService};
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::event_streams::{EventStreamPermit, StreamHolder};
use super::events::{self, KEEP_ALIVE_COMMENT, LAST_EVENT_ID};
use super::query::QueryParameters;
use super::visible_job::VisibleJob;
use crate::access::StreamAuthorization;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{EVENT_STREAM_HEARTBEAT, EVENT_STREAM_POLL, LOG_PIECE_BYTES, LOG_TAIL_MAX};
use crate::predict::response_format::wants_events;

/// The values that `since` accepts.
const SINCE_EXPECTED: &str =
    "a duration before now such as 10m, a time such as 2026-11-21T12:03:13Z, or milliseconds since 1970";

/// Handles `GET /api/v1/jobs/{job}/logs?attempt=N&follow=1&since=TIME&tail=N&timestamps=1&prefix=1`. With `follow`, the
/// response ends when the job ends or the server stops.
pub(crate) async fn logs(
    State(app): State<AppState>,
    (VisibleJob(job), pass, holder): (VisibleJob, StreamAuthorization, StreamHolder),
    headers: HeaderMap,
    parameters: QueryParameters,
) -> Result<Response, ApiError> {
    let attempt = parameters.parse::<u32>("attempt", "the number of an attempt, from 1")?;
    if let Some(attempt) = attempt.filter(|&attempt| attempt == 0 || (attempt > job.attempts && job.state.is_final())) {
        let hint = format!("job {} has {} attempts", job.name, job.attempts);
        return Err(ApiError::NotFound { kind: "attempt", name: attempt.to_string(), hint });
    }
    let tail = parameters.parse::<usize>("tail", "a number of lines")?.map(|lines| lines.min(LOG_TAIL_MAX));
    let since = parameters.parse::<LogSince>("since", SINCE_EXPECTED)?.map(|since| since.min_timestamp(app.now_ms()));
    let (as_events, follow) = (wants_events(&headers), parameters.flag("follow"));
    let place = (as_events || follow).then(|| app.event_streams().open(holder)).transpose()?;
    let mut reader = JobLogReader {
        pass,
        job: job.id,
        at: LogPosition { attempt: attempt.unwrap_or(1), offset: 0 },
        single_attempt: attempt.is_some(),
        follow,
        as_events,
        since,
        timestamps: parameters.flag("timestamps"),
        prefix: parameters.flag("prefix").then_some(job.name),
        changes: app.jobs().subscribe_changes(),
        shutdown: app.shutdown(),
        first: None,
        is_finished: false,
        _permit: place,
        last_sent_at: Instant::now(),
        jobs: app.jobs().clone(),
        app,
    };
    let last = headers.get(LAST_EVENT_ID).filter(|_| as_events);
    if let Some(last) = last {
        let text = last.to_str().unwrap_or_default();
        reader.resume_after(text, attempt).await?;
    } else if let Some(lines) = tail {
        reader.first = Some(reader.read_tail(lines).await?);
    }
    let lines = stream::unfold(reader, |mut reader| async move {
        match reader.next().await {
            Ok(text) => text.map(|text| (Ok(text), reader)),
            Err(error) => {
                // The response head is already sent: end the response here, so that the client sees it is incomplete.
                tracing::error!(job = reader.job, %error, "reading a log failed");
                reader.is_finished = true;
                Some((Err(error), reader))
            }
        }
    });
    let body = Body::from_stream(lines);
    if as_events {
        return Ok(events::event_stream_response(body));
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// A position between two lines of a job's logs, written `ATTEMPT:OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogPosition {
    attempt: u32,
    offset: u64,
}

impl FromStr for LogPosition {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<LogPosition, Self::Err> {
        let (attempt, offset) = text.split_once(':').unwrap_or((text, ""));
        Ok(LogPosition { attempt: attempt.parse()?, offset: offset.parse()? })
    }
}

struct JobLogReader {
    app: AppState,
    jobs: JobService,
    pass: StreamAuthorization,
    job: String,
    at: LogPosition,
    /// Whether only one attempt was requested.
    single_attempt: bool,
    follow: bool,
    /// The minimum timestamp of the lines, or `None` for all lines.
    since: Option<String>,
    timestamps: bool,
    /// The job's name, if each line is prefixed with it.
    prefix: Option<String>,
    changes: watch::Receiver<u64>,
    shutdown: watch::Receiver<bool>,
    /// Formatted text that was read ahead.
    first: Option<String>,
    is_finished: bool,
    /// When something was last sent to the client.
    last_sent_at: Instant,
    /// Whether the response is a stream of events rather than plain text.
    as_events: bool,
    /// The permit of an event stream, or of a text that follows the log.
    _permit: Option<EventStreamPermit>,
}

/// The result of one read.
enum LogReadStep {
    /// Whole lines, and the position after them.
    Text(String, LogPosition),
    /// No new lines yet.
    Wait,
    End,
}

impl JobLogReader {
    /// Returns the next lines, or `None` at the end of the log.
    async fn next(&mut self) -> Result<Option<String>, JobError> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Ok(Some(first));
        }
        while !self.is_finished {
            // Before reading, so that a change during the read triggers another one.
            self.changes.mark_unchanged();
            match self.read_step().await? {
                _ if !self.pass.is_still_valid(self.app.now_ms()) => return Ok(None),
                LogReadStep::Text(text, from) => {
                    let output = self.format_lines(&text, from);
                    if !output.is_empty() {
                        self.last_sent_at = Instant::now();
                        return Ok(Some(output));
                    }
                }
                LogReadStep::End => return Ok(self.end_event()),
                LogReadStep::Wait if !self.follow => return Ok(self.end_event()),
                LogReadStep::Wait => match self.wait_for_change().await {
                    LogWakeup::Change => {}
                    LogWakeup::Nothing => {
                        self.last_sent_at = Instant::now();
                        return Ok(Some(KEEP_ALIVE_COMMENT.to_owned()));
                    }
                    LogWakeup::End => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// Returns the last event of an event stream; plain text ends without one.
    fn end_event(&mut self) -> Option<String> {
        self.is_finished = true;
        self.as_events.then(|| events::format_event(None, "end", "{}"))
    }

    /// Waits until there may be more lines. Event streams limit how often they wake up, since they are notified of
    /// changes of any job.
    async fn wait_for_change(&mut self) -> LogWakeup {
        let is_stream = self.as_events;
        // The change may concern another job: send a heartbeat anyway.
        let quiet = async {
            if is_stream {
                sleep_until(self.last_sent_at + EVENT_STREAM_HEARTBEAT).await
            } else {
                std::future::pending().await
            }
        };
        let heard = tokio::select! {
            changed = self.changes.changed() => if changed.is_ok() { LogWakeup::Change } else { LogWakeup::End },
            () = quiet => LogWakeup::Nothing,
            () = wait_for_shutdown(&mut self.shutdown) => LogWakeup::End,
        };
        if !is_stream || !matches!(heard, LogWakeup::Change) {
            return heard;
        }
        tokio::select! {
            () = sleep(EVENT_STREAM_POLL) => heard,
            () = wait_for_shutdown(&mut self.shutdown) => LogWakeup::End,
        }
    }

    async fn read_step(&mut self) -> Result<LogReadStep, JobError> {
        loop {
            let from = self.at;
            let piece = self.jobs.read_log(&self.job, from.attempt, from.offset, LOG_PIECE_BYTES).await?;
            self.at.offset = piece.offset;
            if !piece.text.is_empty() {
                return Ok(LogReadStep::Text(piece.text, from));
            }
            if piece.open {
                return Ok(LogReadStep::Wait);
            }
            if self.single_attempt {
                return Ok(LogReadStep::End);
            }
            let job = self.jobs.get(&self.job).await?;
            if self.at.attempt >= job.attempts {
                // Between two attempts there is nothing to read, but more will follow.
                return Ok(if job.state.is_final() { LogReadStep::End } else { LogReadStep::Wait });
            }
            self.at = LogPosition { attempt: self.at.attempt + 1, offset: 0 };
        }
    }

    /// Resumes after the line that the client reports as the last one it read.
    async fn resume_after(&mut self, last: &str, attempt: Option<u32>) -> Result<(), ApiError> {
        let expected = "the number of an event of this log";
        let got = || last.chars().take(80).collect();
        let refused = || ApiError::Parameter { name: "Last-Event-ID", expected, got: got() };
        let place: LogPosition = last.trim().parse().map_err(|_| refused())?;
        if place.attempt == 0 || attempt.is_some_and(|attempt| attempt != place.attempt) {
            return Err(refused());
        }
        if let Some(before) = place.offset.checked_sub(1) {
            // The id comes from the client: the offset may not be at the end of a line, or not even within a character
            // boundary.
            let ends = self.jobs.read_log(&self.job, place.attempt, before, LOG_PIECE_BYTES).await;
            if !ends.is_ok_and(|piece| piece.text.starts_with('\n')) {
                return Err(refused());
            }
        }
        self.at = place;
        Ok(())
    }

    /// Returns the last lines of the log, formatted; reading continues after them. The log is read backwards, so
    /// earlier lines cost nothing.
    async fn read_tail(&mut self, lines: usize) -> Result<String, JobError> {
        if !self.single_attempt {
            self.at.attempt = self.jobs.get(&self.job).await?.attempts.max(1);
        }
        let end_of = |attempt| LogPosition { attempt, offset: u64::MAX };
        let newest = end_of(self.at.attempt);
        let mut back = newest;
        // In reverse order.
        let mut formatted_lines: Vec<String> = Vec::new();
        'back: loop {
            let (text, range) =
                self.jobs.read_log_backward(&self.job, back.attempt, back.offset, LOG_PIECE_BYTES).await?;
            if back == newest {
                self.at.offset = range.end;
            }
            back.offset = range.start;
            let read: Vec<(LogPosition, &str)> = lines_with_positions(&text, back).collect();
            for (place, line) in read.into_iter().rev() {
                // Lines before one that is too old are older still.
                if formatted_lines.len() == lines || !self.is_recent_enough(line) {
                    break 'back;
                }
                formatted_lines.push(self.format_line(line, place));
            }
            if back.offset == 0 {
                if self.single_attempt || back.attempt <= 1 {
                    break;
                }
                back = end_of(back.attempt - 1);
            }
        }
        formatted_lines.reverse();
        Ok(formatted_lines.concat())
    }

    /// Formats the lines that start at a position.
    fn format_lines(&self, text: &str, from: LogPosition) -> String {
        if self.timestamps && self.prefix.is_none() && !self.as_events && self.since.is_none() {
            return text.to_owned();
        }
        let wanted = lines_with_positions(text, from).filter(|(_, line)| self.is_recent_enough(line));
        wanted.map(|(place, line)| self.format_line(line, place)).collect()
    }

    /// Returns whether a stored line is recent enough for `since`.
    fn is_recent_enough(&self, line: &str) -> bool {
        self.since.as_deref().is_none_or(|since| line.get(..since.len()).is_none_or(|stamp| stamp >= since))
    }

    /// Formats one line; `place` is the position after it.
    fn format_line(&self, line: &str, place: LogPosition) -> String {
        let text = if self.timestamps { line } else { line.get(TIMESTAMP_BYTES..).unwrap_or(line) };
        let text = match &self.prefix {
            Some(job) => format!("{job}/{} {text}", place.attempt),
            None => text.to_owned(),
        };
        if !self.as_events {
            return text;
        }
        let id = format!("{}:{}", place.attempt, place.offset);
        events::format_event(Some(&id), "line", text.trim_end_matches(['\r', '\n']))
    }
}

/// Why waiting ended.
enum LogWakeup {
    Change,
    Nothing,
    End,
}

/// Returns the lines, each with the position after it.
fn lines_with_positions(text: &str, from: LogPosition) -> impl Iterator<Item = (LogPosition, &str)> {
    let mut at = from;
    text.split_inclusive('\n').map(move |line| {
        at.offset += line.len() as u64;
        (at, line)
    })
}
