//! `GET /api/v1/events`: job changes and job events as server-sent events.
//!
//! A stream begins with one `job` event for each job that it follows, then `ready`. After that it sends `job` for each
//! job that changed, `gone` for each job that was deleted, and `note`, with its number, for each event of a job. It
//! polls the records when `Jobs::subscribe_changes` reports a change, at most every [`EVENT_STREAM_POLL`], and only
//! after the client has taken everything already sent, so a slow client delays only its own events. Source of the
//! format: WHATWG HTML.

use std::collections::{HashMap, HashSet};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use futures::stream;
use saggar_jobs::{JobError, QueueWait, QueueWaits};
use saggar_rest::events::{JobNoteDocument, JobsReadyNote, RemovedJobNote};
use saggar_serving::shutdown::wait_for_shutdown;
use saggar_store::limits::EVENTS_LISTED_MAX;
use saggar_store::records::{JobDetails, JobEvent, JobFilter, JobRecord, JobState};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::event_streams::{EventStreamPermit, StreamHolder};
use super::jobs::views;
use super::query::QueryParameters;
use crate::access::{ProjectScope, StreamAuthorization};
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{EVENT_STREAM_HEARTBEAT, EVENT_STREAM_POLL, JOBS_FOLLOWED_MAX};

/// The header in which a reconnecting client sends the id of the last event it read.
pub(super) const LAST_EVENT_ID: &str = "last-event-id";
/// The comment sent on an idle stream, so that either side notices a broken connection.
pub(super) const KEEP_ALIVE_COMMENT: &str = ": still here\n\n";

/// Handles `GET /api/v1/events?follow=1&job=&project=`. Without `follow`, the stream ends after `ready`.
pub(crate) async fn events(
    State(app): State<AppState>,
    (sight, pass, holder): (ProjectScope, StreamAuthorization, StreamHolder),
    headers: HeaderMap,
    parameters: QueryParameters,
) -> Result<Response, ApiError> {
    let last = headers.get(LAST_EVENT_ID).map(|id| parse_event_id(id).ok_or_else(|| bad_event_id(id))).transpose()?;
    let job = match parameters.get("job") {
        Some(name) => Some(sight.find_job(app.jobs(), name).await?.id),
        None => None,
    };
    let place = app.event_streams().open(holder)?;
    let after = match last {
        Some(last) => last,
        None => app.jobs().newest_event_sequence().await?,
    };
    let follower = JobEventFollower {
        sight,
        pass,
        job,
        project: parameters.get("project").map(str::to_owned),
        follow: parameters.flag("follow"),
        after,
        sent: HashMap::new(),
        polled_at: None,
        last_sent_at: Instant::now(),
        has_more_events: false,
        is_finished: false,
        changes: app.jobs().subscribe_changes(),
        shutdown: app.shutdown(),
        app,
        _permit: place,
    };
    let news = stream::unfold(follower, |mut follower| async move {
        match follower.next().await {
            Ok(text) => text.map(|text| (Ok(text), follower)),
            Err(error) => {
                // The response head is already sent: end the response here, and the client reconnects.
                tracing::error!(%error, "following jobs failed");
                follower.is_finished = true;
                Some((Err(error), follower))
            }
        }
    });
    Ok(event_stream_response(Body::from_stream(news)))
}

fn parse_event_id(id: &HeaderValue) -> Option<u64> {
    id.to_str().ok()?.trim().parse().ok()
}

fn bad_event_id(id: &HeaderValue) -> ApiError {
    let got = String::from_utf8_lossy(id.as_bytes()).chars().take(80).collect();
    ApiError::Parameter { name: "Last-Event-ID", expected: "the number of an event", got }
}

/// Returns a response of type `text/event-stream`.
pub(super) fn event_stream_response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Formats one server-sent event. `data` contains no line breaks.
pub(super) fn format_event(id: Option<&str>, name: &str, data: &str) -> String {
    debug_assert!(!data.contains(['\n', '\r']), "one line of data");
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("{id}event: {name}\ndata: {data}\n\n")
}

/// A job as it was when it was last sent to the client.
struct SentJob {
    job: JobRecord,
    wait: Option<QueueWait>,
    json: String,
}

struct JobEventFollower {
    app: AppState,
    /// The projects that the client can see.
    sight: ProjectScope,
    pass: StreamAuthorization,
    /// The identifier of the followed job, or `None` to follow all.
    job: Option<String>,
    project: Option<String>,
    follow: bool,
    /// The sequence number of the last event sent.
    after: u64,
    /// The jobs as last sent to the client, by identifier.
    sent: HashMap<String, SentJob>,
    polled_at: Option<Instant>,
    /// When something was last sent to the client.
    last_sent_at: Instant,
    /// Whether the last poll left events unread.
    has_more_events: bool,
    is_finished: bool,
    changes: watch::Receiver<u64>,
    shutdown: watch::Receiver<bool>,
    _permit: EventStreamPermit,
}

impl JobEventFollower {
    /// Returns the next events, or `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<String>, ApiError> {
        loop {
            if self.is_finished || (self.polled_at.is_some() && !self.follow && !self.has_more_events) {
                return Ok(None);
            }
            let mut quiet = false;
            if let Some(looked) = self.polled_at.filter(|_| !self.has_more_events) {
                tokio::select! {
                    changed = self.changes.changed() => if changed.is_err() { return Ok(None) },
                    // The change may not concern this client: send a heartbeat anyway.
                    () = sleep_until(self.last_sent_at + EVENT_STREAM_HEARTBEAT) => quiet = true,
                    () = wait_for_shutdown(&mut self.shutdown) => return Ok(None),
                }
                tokio::select! {
                    () = sleep_until(looked + EVENT_STREAM_POLL) => {}
                    () = wait_for_shutdown(&mut self.shutdown) => return Ok(None),
                }
            }
            if !self.pass.is_still_valid(self.app.now_ms()) {
                return Ok(None);
            }
            // Before reading, so that a change during the read triggers another poll.
            self.changes.mark_unchanged();
            let mut news = self.collect_changes().await?;
            self.polled_at = Some(Instant::now());
            if news.is_empty() && quiet {
                KEEP_ALIVE_COMMENT.clone_into(&mut news);
            }
            if !news.is_empty() {
                self.last_sent_at = Instant::now();
                return Ok(Some(news));
            }
        }
    }

    /// Returns the text of everything that changed since the last poll.
    async fn collect_changes(&mut self) -> Result<String, ApiError> {
        let first = self.polled_at.is_none();
        let mut news = String::new();
        let (jobs, cursor) = self.followed_jobs().await?;
        let is_queue = jobs.iter().any(|job| job.state == JobState::Queued);
        let waits = if is_queue { self.queue_waits().await? } else { QueueWaits::default() };
        let details = self.changed_job_details(&jobs, &waits).await?;
        for job in &jobs {
            if let Some(json) = self.changed_job_json(job, waits.get(&job.id), &details) {
                news += &format_event(None, "job", &json);
            }
        }
        for (id, name) in self.take_removed_jobs(&jobs, cursor) {
            news += &format_event(None, "gone", &event_data(&RemovedJobNote { id, name }));
        }
        // The only followed job may have been deleted before the first poll.
        self.is_finished |= self.job.is_some() && jobs.is_empty();
        if first {
            news += &format_event(None, "ready", &event_data(&JobsReadyNote { jobs: jobs.len(), cursor }));
        }
        self.push_job_events(&mut news).await?;
        Ok(news)
    }

    async fn queue_waits(&self) -> Result<QueueWaits, JobError> {
        self.app.jobs().queue_waits(|project| self.sight.contains_project(project)).await
    }

    /// Returns the followed jobs, newest first, and the cursor of the oldest if there may be more.
    async fn followed_jobs(&self) -> Result<(Vec<JobRecord>, Option<u64>), ApiError> {
        if let Some(id) = &self.job {
            return match self.sight.find_job(self.app.jobs(), id).await {
                Ok(job) => Ok((vec![job], None)),
                Err(error) if is_missing(&error) => Ok((Vec::new(), None)),
                Err(error) => Err(error.into()),
            };
        }
        let (project, projects) = (self.project.clone(), self.sight.projects());
        let filter = JobFilter { project, projects, limit: JOBS_FOLLOWED_MAX, ..JobFilter::default() };
        let jobs = self.app.jobs().list(filter).await?;
        let full = jobs.len() == JOBS_FOLLOWED_MAX as usize;
        let cursor = jobs.last().filter(|_| full).map(|job| job.cursor);
        Ok((jobs, cursor))
    }

    /// Reads the details of the jobs that may have changed.
    async fn changed_job_details(
        &self,
        jobs: &[JobRecord],
        waits: &HashMap<String, QueueWait>,
    ) -> Result<HashMap<String, JobDetails>, JobError> {
        let is_same = |sent: &SentJob, job: &JobRecord| sent.job == *job && sent.wait.as_ref() == waits.get(&job.id);
        let is_known = |job: &JobRecord| self.sent.get(&job.id).is_some_and(|sent| is_same(sent, job));
        // The progress of a running job is not in its record alone.
        let changed = jobs.iter().filter(|job| job.state.is_active() || !is_known(job));
        let ids: Vec<String> = changed.map(|job| job.id.clone()).collect();
        if ids.is_empty() { Ok(HashMap::new()) } else { self.app.jobs().details(ids).await }
    }

    /// Returns the job as JSON if it differs from what was last sent to the client.
    fn changed_job_json(
        &mut self,
        job: &JobRecord,
        wait: Option<&QueueWait>,
        details: &HashMap<String, JobDetails>,
    ) -> Option<String> {
        // Without details the job was deleted meanwhile: the next poll reports it.
        let json = event_data(&views::job_document(&self.app, job, wait, details.get(&job.id)?));
        let is_news = self.sent.get(&job.id).is_none_or(|sent| sent.json != json);
        let sent = SentJob { job: job.clone(), wait: wait.cloned(), json: json.clone() };
        self.sent.insert(job.id.clone(), sent);
        is_news.then_some(json)
    }

    /// Returns identifier and name of the jobs that were sent to the client and have been deleted, and forgets them.
    /// Jobs older than `oldest` are forgotten without being returned, since the stream no longer follows them.
    fn take_removed_jobs(&mut self, jobs: &[JobRecord], oldest: Option<u64>) -> Vec<(String, String)> {
        let there: HashSet<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
        let mut gone = Vec::new();
        self.sent.retain(|id, sent| {
            let stays = there.contains(id.as_str());
            if !stays && oldest.is_none_or(|oldest| sent.job.cursor > oldest) {
                gone.push((id.clone(), sent.job.name.clone()));
            }
            stays
        });
        gone
    }

    /// Appends the events of the followed jobs.
    async fn push_job_events(&mut self, news: &mut String) -> Result<(), ApiError> {
        let events = match &self.job {
            Some(id) => self.app.jobs().events(id, self.after).await,
            None => self.app.jobs().all_events(self.after).await,
        };
        let events = match events {
            Err(error) if is_missing(&error) => return Ok(()),
            events => events?,
        };
        self.has_more_events = events.len() >= EVENTS_LISTED_MAX as usize;
        for one in events {
            self.after = one.sequence;
            // Events of jobs that are not followed are left out.
            if let Some(sent) = self.sent.get(&one.job) {
                *news += &format_event(Some(&one.sequence.to_string()), "note", &job_note(&sent.job.name, &one));
            }
        }
        Ok(())
    }
}

fn job_note(job: &str, event: &JobEvent) -> String {
    event_data(&JobNoteDocument { event: views::event_document(event), job: job.to_owned() })
}

/// Serializes a document as the data of an event: one line of JSON.
fn event_data(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("documents have text as keys")
}

/// Returns whether the error means that the job does not exist or was deleted.
fn is_missing(error: &JobError) -> bool {
    matches!(error, JobError::NotFound { .. })
}
