//! The trace of a job: the request that submitted it caused it. The request's trace context is an event of the job, so
//! that attempts after a restart of the server belong to the same trace.
//!
//! The IDs of spans follow from the job's, and their times from its records, so a server that starts again continues the
//! job's spans.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use saggar_clock::UnixMillis;
use saggar_store::records::{ClaimedJob, JobAttempt, JobEvent, JobRecord};
use saggar_telemetry::span::AttributeValue;
use saggar_telemetry::{FinishedSpan, SpanId, SpanKind, SpanStatus, TraceContext};

use crate::error::JobError;
use crate::phases::PHASE_EVENT;
use crate::shared::SharedState;
use crate::spec::{HOST_LOST, HOST_RESTART};

/// The kind of the event with the trace context of the request that submitted the job.
pub(crate) const TRACE_EVENT: &str = "TRACE";

/// The trace of a job whose attempt runs.
pub(crate) struct JobTrace {
    /// The context of the request that submitted the job.
    request: TraceContext,
    job: String,
    attempt: u32,
}

/// Returns the text of the event with a trace context.
pub(crate) fn event_text(context: &TraceContext) -> String {
    format!("{} {}", context.traceparent(), context.state).trim_end().to_owned()
}

fn parse_event(text: &str) -> Option<TraceContext> {
    let (parent, state) = text.split_once(' ').unwrap_or((text, ""));
    let states = Some(state).filter(|state| !state.is_empty()).into_iter().map(str::as_bytes);
    TraceContext::parse(std::iter::once(parent.as_bytes()), states)
}

impl JobTrace {
    /// Reads the trace of a claimed job, or returns `None` if its request had none. Records the span of the attempt before
    /// if the server ended during it.
    pub(crate) async fn read(shared: &Arc<SharedState>, claim: &ClaimedJob) -> Option<JobTrace> {
        let (id, job, attempt) = (claim.job.id.clone(), claim.job.id.clone(), claim.lease.attempt);
        let read = move |records: &dyn saggar_store::records::JobRecords| records.events_of_kinds(&id, &[TRACE_EVENT]);
        // An attempt runs without a trace too.
        let events = shared.with_records(read).await.ok()?;
        let trace = JobTrace { request: parse_event(&events.first()?.text)?, job, attempt };
        if trace.attempt > 1 && trace.is_recorded(shared) {
            let _ = trace.record_attempt_before(shared).await;
        }
        Some(trace)
    }

    /// Returns the context for the attempt's worker.
    pub(crate) fn attempt_context(&self) -> TraceContext {
        self.request.at_span(self.span_id(&format!("attempt {}", self.attempt)))
    }

    fn is_recorded(&self, shared: &SharedState) -> bool {
        self.request.is_sampled && shared.tracer().is_some()
    }

    async fn record_attempt_before(&self, shared: &Arc<SharedState>) -> Result<(), JobError> {
        let (job, attempts, events) = self.read_records(shared).await?;
        let before = attempts.iter().find(|attempt| attempt.number + 1 == self.attempt);
        if let (Some(tracer), Some(before)) = (shared.tracer(), before)
            && [HOST_RESTART, HOST_LOST].contains(&before.reason.code.as_str())
        {
            tracer.record(self.attempt_spans(&job, &attempts, before, &events));
        }
        Ok(())
    }

    /// Records the spans of the attempt, which has ended, and that of the job if it has ended too.
    pub(crate) async fn record_end(&self, shared: &Arc<SharedState>) {
        let Some(tracer) = shared.tracer().filter(|_| self.request.is_sampled) else { return };
        // Without records there is no span; the records' failure is handled where the attempt ends.
        let Ok((job, attempts, events)) = self.read_records(shared).await else { return };
        let Some(attempt) = attempts.iter().find(|attempt| attempt.number == self.attempt) else { return };
        let mut spans = self.attempt_spans(&job, &attempts, attempt, &events);
        if let Some(finished_ms) = job.finished_ms {
            let mut span = self.span("job", "job", Some(self.request.span), (job.created_ms, finished_ms));
            span.kind = SpanKind::Consumer;
            span.attributes = vec![
                ("saggar.job", (&*job.name).into()),
                ("saggar.project", (&*job.project).into()),
                ("saggar.state", job.state.name().into()),
            ];
            span.status = status(job.state.name(), &job.reason.code);
            spans.push(span);
        }
        tracer.record(spans);
    }

    async fn read_records(
        &self,
        shared: &Arc<SharedState>,
    ) -> Result<(JobRecord, Vec<JobAttempt>, Vec<JobEvent>), JobError> {
        let id = self.job.clone();
        shared
            .with_records(move |records| {
                Ok((records.get(&id)?, records.attempts(&id)?, records.events_of_kinds(&id, &[PHASE_EVENT])?))
            })
            .await
    }

    /// Returns the spans of an attempt: the wait before it, itself and the phases that it began.
    fn attempt_spans(
        &self,
        job: &JobRecord,
        attempts: &[JobAttempt],
        attempt: &JobAttempt,
        events: &[JobEvent],
    ) -> Vec<FinishedSpan> {
        let (number, job_span) = (attempt.number, self.span_id("job"));
        let before = attempts.iter().find(|before| before.number + 1 == number).and_then(|before| before.ended_ms);
        let queued_ms = before.unwrap_or(job.created_ms);
        let name = |text: &str| {
            vec![("saggar.job", (&*job.name).into()), ("saggar.attempt", u64::from(number).into())]
                .into_iter()
                .chain((!text.is_empty()).then(|| ("saggar.phase", AttributeValue::from(text))))
                .collect::<Vec<_>>()
        };
        let mut wait =
            self.span("job queue", &format!("queue {number}"), Some(job_span), (queued_ms, attempt.started_ms));
        wait.attributes = name("");
        let ended_ms = attempt.ended_ms.unwrap_or(attempt.started_ms);
        let key = format!("attempt {number}");
        let mut own = self.span("job attempt", &key, Some(job_span), (attempt.started_ms, ended_ms));
        own.attributes = name("");
        own.attributes.push(("saggar.state", attempt.state.name().into()));
        own.attributes.push(("saggar.device", (&*attempt.device).into()));
        own.status = status(attempt.state.name(), &attempt.reason.code);
        let own_id = own.id;
        let within: Vec<_> =
            events.iter().filter(|event| (attempt.started_ms..=ended_ms).contains(&event.at_ms)).collect();
        let mut spans = vec![wait, own];
        for (at, event) in within.iter().enumerate() {
            let end_ms = within.get(at + 1).map_or(ended_ms, |next| next.at_ms);
            let mut phase = self.span("job phase", &format!("{key} phase {at}"), Some(own_id), (event.at_ms, end_ms));
            phase.attributes = name(&event.text);
            spans.push(phase);
        }
        spans
    }

    fn span(&self, name: &str, key: &str, parent: Option<SpanId>, times: (UnixMillis, UnixMillis)) -> FinishedSpan {
        FinishedSpan {
            trace: self.request.trace,
            id: self.span_id(key),
            parent,
            state: self.request.state.clone(),
            name: name.to_owned(),
            kind: SpanKind::Internal,
            began: wall_clock(times.0),
            ended: wall_clock(times.1.max(times.0)),
            attributes: Vec::new(),
            status: SpanStatus::Unset,
        }
    }

    fn span_id(&self, key: &str) -> SpanId {
        SpanId::derived(self.request.trace, &format!("{} {key}", self.job))
    }
}

fn wall_clock(ms: UnixMillis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// Returns the status of a span for a state of a job or an attempt.
fn status(state: &str, reason: &str) -> SpanStatus {
    match state {
        "FAILED" | "TIMED_OUT" => SpanStatus::Error(reason.to_owned()),
        _ => SpanStatus::Unset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_context_is_stored_as_an_event() {
        let parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".as_slice();
        for state in ["", "rojo=00f0,congo=t61"] {
            let states = Some(state.as_bytes()).into_iter();
            let context = TraceContext::parse(std::iter::once(parent), states).unwrap();
            assert_eq!(parse_event(&event_text(&context)), Some(context));
        }
        assert_eq!(parse_event("something else"), None);
    }
}
