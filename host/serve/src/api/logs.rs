//! `GET /api/v1/jobs/{job}/logs`: an attempt's lines, or all attempts' one after the other, as they come.
//!
//! As server-sent events, where the client accepts those, each line is numbered by its attempt and the offset after it, so
//! that a client that was cut off goes on where it was. Then `end` says that there is no more.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use saggar_jobs::logs::{Since, TIMESTAMP_BYTES};
use saggar_jobs::{JobError, Jobs};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::event_streams::{EventStreamPlace, StreamHolder};
use super::events::{self, LAST_EVENT_ID, STILL_HERE};
use super::query::Parameters;
use crate::access::{Pass, SeenJob};
use crate::app::App;
use crate::connection::told;
use crate::error::ApiError;
use crate::limits::{EVENTS_PACE, EVENTS_QUIET_MAX, LOG_PIECE_BYTES, LOG_TAIL_MAX};
use crate::predict;

/// What `since` takes.
const SINCE: &str = "how long ago such as 10m, a time such as 2026-11-21T12:03:13Z, or milliseconds since 1970";

/// `GET /api/v1/jobs/{job}/logs?attempt=N&follow=1&since=TIME&tail=N&timestamps=1&prefix=1`. With `follow` it ends when the job
/// does, or the server.
pub(crate) async fn logs(
    State(app): State<App>,
    (SeenJob(job), pass, holder): (SeenJob, Pass, StreamHolder),
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let attempt = parameters.parse::<u32>("attempt", "the number of an attempt, from 1")?;
    if let Some(attempt) = attempt.filter(|&attempt| attempt == 0 || (attempt > job.attempts && job.state.is_final())) {
        let hint = format!("job {} has {} attempts", job.name, job.attempts);
        return Err(ApiError::NotFound { kind: "attempt", name: attempt.to_string(), hint });
    }
    let tail = parameters.parse::<usize>("tail", "a number of lines")?.map(|lines| lines.min(LOG_TAIL_MAX));
    let since = parameters.parse::<Since>("since", SINCE)?.map(|since| since.stamp(app.now_ms()));
    let (as_events, follow) = (predict::wants_events(&headers), parameters.flag("follow"));
    let place = (as_events || follow).then(|| app.streams().open(holder)).transpose()?;
    let mut reader = Reader {
        pass,
        job: job.id,
        at: Place { attempt: attempt.unwrap_or(1), offset: 0 },
        only: attempt.is_some(),
        follow,
        as_events,
        since,
        timestamps: parameters.flag("timestamps"),
        prefix: parameters.flag("prefix").then_some(job.name),
        changes: app.jobs().changes(),
        shutdown: app.shutdown(),
        first: None,
        over: false,
        _place: place,
        said: Instant::now(),
        jobs: app.jobs().clone(),
        app,
    };
    let last = headers.get(LAST_EVENT_ID).filter(|_| as_events);
    if let Some(last) = last {
        let text = last.to_str().unwrap_or_default();
        reader.resume(text, attempt).await?;
    } else if let Some(lines) = tail {
        reader.first = Some(reader.tail(lines).await?);
    }
    let lines = stream::unfold(reader, |mut reader| async move {
        match reader.next().await {
            Ok(text) => text.map(|text| (Ok(text), reader)),
            Err(error) => {
                // The head is out already: the answer ends here, and visibly unfinished.
                tracing::error!(job = reader.job, %error, "reading a log failed");
                reader.over = true;
                Some((Err(error), reader))
            }
        }
    });
    let body = Body::from_stream(lines);
    if as_events {
        return Ok(events::answer(body));
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// A place between two lines of a job's logs, written `ATTEMPT:OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    attempt: u32,
    offset: u64,
}

impl FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Place, Self::Err> {
        let (attempt, offset) = text.split_once(':').unwrap_or((text, ""));
        Ok(Place { attempt: attempt.parse()?, offset: offset.parse()? })
    }
}

struct Reader {
    app: App,
    jobs: Jobs,
    pass: Pass,
    job: String,
    at: Place,
    /// Whether that attempt alone is wanted.
    only: bool,
    follow: bool,
    /// The stamp of the first line that is wanted, where older ones are not.
    since: Option<String>,
    timestamps: bool,
    /// The job's name, where each line is to say where it comes from.
    prefix: Option<String>,
    changes: watch::Receiver<u64>,
    shutdown: watch::Receiver<bool>,
    /// Text read ahead, as it goes out.
    first: Option<String>,
    over: bool,
    /// When the client was told something.
    said: Instant,
    /// Whether it is a stream of events, and not a text.
    as_events: bool,
    /// The place among the streams, where it is one or may last as long.
    _place: Option<EventStreamPlace>,
}

/// What reading on gives.
enum Step {
    /// Whole lines, from this place on.
    Text(String, Place),
    /// Nothing new, but there may be.
    Wait,
    End,
}

impl Reader {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<String>, JobError> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Ok(Some(first));
        }
        while !self.over {
            // Before reading: a change that comes in between is then noticed after it.
            self.changes.mark_unchanged();
            match self.step().await? {
                _ if !self.pass.holds(self.app.now_ms()) => return Ok(None),
                Step::Text(text, from) => {
                    let shown = self.shown(&text, from);
                    if !shown.is_empty() {
                        self.said = Instant::now();
                        return Ok(Some(shown));
                    }
                }
                Step::End => return Ok(self.end()),
                Step::Wait if !self.follow => return Ok(self.end()),
                Step::Wait => match self.wait().await {
                    Heard::Change => {}
                    Heard::Nothing => {
                        self.said = Instant::now();
                        return Ok(Some(STILL_HERE.to_owned()));
                    }
                    Heard::End => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// The last event of a stream of them; a text just ends.
    fn end(&mut self) -> Option<String> {
        self.over = true;
        self.as_events.then(|| events::event(None, "end", "{}"))
    }

    /// Waits until there may be more. Events leave some time between them, since every change of any job is heard here.
    async fn wait(&mut self) -> Heard {
        let is_stream = self.as_events;
        // What changes may be another job's: this one's reader hears something all the same.
        let quiet = async {
            if is_stream { sleep_until(self.said + EVENTS_QUIET_MAX).await } else { std::future::pending().await }
        };
        let heard = tokio::select! {
            changed = self.changes.changed() => if changed.is_ok() { Heard::Change } else { Heard::End },
            () = quiet => Heard::Nothing,
            () = told(&mut self.shutdown) => Heard::End,
        };
        if !is_stream || !matches!(heard, Heard::Change) {
            return heard;
        }
        tokio::select! {
            () = sleep(EVENTS_PACE) => heard,
            () = told(&mut self.shutdown) => Heard::End,
        }
    }

    async fn step(&mut self) -> Result<Step, JobError> {
        loop {
            let from = self.at;
            let piece = self.jobs.log(&self.job, from.attempt, from.offset, LOG_PIECE_BYTES).await?;
            self.at.offset = piece.offset;
            if !piece.text.is_empty() {
                return Ok(Step::Text(piece.text, from));
            }
            if piece.open {
                return Ok(Step::Wait);
            }
            if self.only {
                return Ok(Step::End);
            }
            let job = self.jobs.get(&self.job).await?;
            if self.at.attempt >= job.attempts {
                // Between two attempts there is nothing to read, and more to come.
                return Ok(if job.state.is_final() { Step::End } else { Step::Wait });
            }
            self.at = Place { attempt: self.at.attempt + 1, offset: 0 };
        }
    }

    /// Goes on after the line of which a client says that it read it last.
    async fn resume(&mut self, last: &str, attempt: Option<u32>) -> Result<(), ApiError> {
        let expected = "the number of an event of this log";
        let got = || last.chars().take(80).collect();
        let refused = || ApiError::Parameter { name: "Last-Event-ID", expected, got: got() };
        let place: Place = last.trim().parse().map_err(|_| refused())?;
        if place.attempt == 0 || attempt.is_some_and(|attempt| attempt != place.attempt) {
            return Err(refused());
        }
        if let Some(before) = place.offset.checked_sub(1) {
            // The number came from outside: where no line ends there, the text may not even be one.
            let ends = self.jobs.log(&self.job, place.attempt, before, LOG_PIECE_BYTES).await;
            if !ends.is_ok_and(|piece| piece.text.starts_with('\n')) {
                return Err(refused());
            }
        }
        self.at = place;
        Ok(())
    }

    /// The last lines there are now, as they go out; reading goes on after them. They are looked for from the end, so those
    /// before them cost nothing.
    async fn tail(&mut self, lines: usize) -> Result<String, JobError> {
        if !self.only {
            self.at.attempt = self.jobs.get(&self.job).await?.attempts.max(1);
        }
        let end_of = |attempt| Place { attempt, offset: u64::MAX };
        let newest = end_of(self.at.attempt);
        let mut back = newest;
        // The last one first.
        let mut shown: Vec<String> = Vec::new();
        'back: loop {
            let (text, range) = self.jobs.log_back(&self.job, back.attempt, back.offset, LOG_PIECE_BYTES).await?;
            if back == newest {
                self.at.offset = range.end;
            }
            back.offset = range.start;
            let read: Vec<(Place, &str)> = places(&text, back).collect();
            for (place, line) in read.into_iter().rev() {
                // Lines before one that is too old are older still.
                if shown.len() == lines || !self.wants(line) {
                    break 'back;
                }
                shown.push(self.line(line, place));
            }
            if back.offset == 0 {
                if self.only || back.attempt <= 1 {
                    break;
                }
                back = end_of(back.attempt - 1);
            }
        }
        shown.reverse();
        Ok(shown.concat())
    }

    /// Lines from a place on, as they go out.
    fn shown(&self, text: &str, from: Place) -> String {
        if self.timestamps && self.prefix.is_none() && !self.as_events && self.since.is_none() {
            return text.to_owned();
        }
        let wanted = places(text, from).filter(|(_, line)| self.wants(line));
        wanted.map(|(place, line)| self.line(line, place)).collect()
    }

    /// Whether a stored line is young enough.
    fn wants(&self, line: &str) -> bool {
        self.since.as_deref().is_none_or(|since| line.get(..since.len()).is_none_or(|stamp| stamp >= since))
    }

    /// A line as it goes out; `place` is the one after it.
    fn line(&self, line: &str, place: Place) -> String {
        let shown = if self.timestamps { line } else { line.get(TIMESTAMP_BYTES..).unwrap_or(line) };
        let shown = match &self.prefix {
            Some(job) => format!("{job}/{} {shown}", place.attempt),
            None => shown.to_owned(),
        };
        if !self.as_events {
            return shown;
        }
        let id = format!("{}:{}", place.attempt, place.offset);
        events::event(Some(&id), "line", shown.trim_end_matches(['\r', '\n']))
    }
}

/// Why waiting is over.
enum Heard {
    Change,
    Nothing,
    End,
}

/// Lines, each with the place after it.
fn places(text: &str, from: Place) -> impl Iterator<Item = (Place, &str)> {
    let mut at = from;
    text.split_inclusive('\n').map(move |line| {
        at.offset += line.len() as u64;
        (at, line)
    })
}
