//! `GET /api/v1/jobs/{job}/logs`: an attempt's lines, or all attempts' one after the other, as they come.

use std::collections::VecDeque;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use saggar_jobs::logs::TIMESTAMP_BYTES;
use saggar_jobs::{JobError, Jobs};
use tokio::sync::watch;

use super::query::Parameters;
use crate::app::App;
use crate::connection::told;
use crate::error::ApiError;
use crate::limits::{LOG_PIECE_BYTES, LOG_TAIL_MAX};

/// `GET /api/v1/jobs/{job}/logs?attempt=N&follow=1&tail=N&timestamps=1`. With `follow` it ends when the job does, or the
/// server.
pub(crate) async fn logs(
    State(app): State<App>,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let job = app.jobs().get(&name).await?;
    let attempt = parameters.parse::<u32>("attempt", "the number of an attempt, from 1")?;
    if let Some(attempt) = attempt.filter(|&attempt| attempt == 0 || (attempt > job.attempts && job.state.is_final())) {
        let hint = format!("job {} has {} attempts", job.name, job.attempts);
        return Err(ApiError::NotFound { kind: "attempt", name: attempt.to_string(), hint });
    }
    let tail = parameters.parse::<usize>("tail", "a number of lines")?.map(|lines| lines.min(LOG_TAIL_MAX));
    let mut reader = Reader {
        jobs: app.jobs().clone(),
        job: job.id,
        attempt: attempt.unwrap_or(1),
        only: attempt.is_some(),
        offset: 0,
        follow: parameters.flag("follow"),
        timestamps: parameters.flag("timestamps"),
        changes: app.jobs().changes(),
        shutdown: app.shutdown(),
        first: None,
    };
    if let Some(lines) = tail {
        reader.first = Some(reader.tail(lines).await?);
    }
    let lines = stream::unfold(reader, |mut reader| async move {
        match reader.next().await {
            Ok(text) => text.map(|text| (Ok(text), reader)),
            Err(error) => {
                // The head is out already: the answer ends here, and visibly unfinished.
                tracing::error!(job = reader.job, %error, "reading a log failed");
                Some((Err(error), reader))
            }
        }
    });
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, Body::from_stream(lines)).into_response())
}

struct Reader {
    jobs: Jobs,
    job: String,
    attempt: u32,
    /// Whether that attempt alone is wanted.
    only: bool,
    offset: u64,
    follow: bool,
    timestamps: bool,
    changes: watch::Receiver<u64>,
    shutdown: watch::Receiver<bool>,
    /// Text read ahead.
    first: Option<String>,
}

/// What reading on gives.
enum Step {
    Text(String),
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
        loop {
            // Before reading: a change that comes in between is then noticed after it.
            self.changes.mark_unchanged();
            match self.step().await? {
                Step::Text(text) => return Ok(Some(self.shown(&text))),
                Step::End => return Ok(None),
                Step::Wait if !self.follow => return Ok(None),
                Step::Wait => tokio::select! {
                    changed = self.changes.changed() => if changed.is_err() { return Ok(None) },
                    () = told(&mut self.shutdown) => return Ok(None),
                },
            }
        }
    }

    async fn step(&mut self) -> Result<Step, JobError> {
        loop {
            let piece = self.jobs.log(&self.job, self.attempt, self.offset, LOG_PIECE_BYTES).await?;
            self.offset = piece.offset;
            if !piece.text.is_empty() {
                return Ok(Step::Text(piece.text));
            }
            if piece.open {
                return Ok(Step::Wait);
            }
            if self.only {
                return Ok(Step::End);
            }
            let job = self.jobs.get(&self.job).await?;
            if self.attempt >= job.attempts {
                // Between two attempts there is nothing to read, and more to come.
                return Ok(if job.state.is_final() { Step::End } else { Step::Wait });
            }
            self.attempt += 1;
            self.offset = 0;
        }
    }

    /// The last lines there are now; reading goes on after them.
    async fn tail(&mut self, lines: usize) -> Result<String, JobError> {
        let mut last: VecDeque<String> = VecDeque::new();
        while let Step::Text(text) = self.step().await? {
            for line in text.split_inclusive('\n') {
                if last.len() == lines {
                    last.pop_front();
                }
                if lines > 0 {
                    last.push_back(line.to_owned());
                }
            }
        }
        let text: String = last.into_iter().collect();
        Ok(self.shown(&text))
    }

    fn shown(&self, text: &str) -> String {
        if self.timestamps {
            return text.to_owned();
        }
        text.split_inclusive('\n').map(|line| line.get(TIMESTAMP_BYTES..).unwrap_or(line)).collect()
    }
}
