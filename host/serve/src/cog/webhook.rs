//! Webhooks: report the progress of a prediction to another server. Disabled unless the operator allows URL prefixes,
//! because a request must not make this server call arbitrary hosts. Only URLs with an allowed prefix are called,
//! redirects are not followed, no proxy is used, and the response body is dropped unread.
//!
//! An event is sent after the previous one. The last one is retried several times.

use std::sync::Arc;
use std::time::Duration;

use saggar_fetch::UrlPrefix;
use saggar_telemetry::TraceContext;
use tokio::sync::{Semaphore, mpsc};

use super::error::PredictionError;
use crate::limits::{CONCURRENT_WEBHOOKS_MAX, WEBHOOK_BACKOFF, WEBHOOK_TIME_MAX, WEBHOOK_TRIES_MAX};

/// The events that are sent to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WebhookEventFilter {
    pub(super) start: bool,
    pub(super) completed: bool,
}

impl Default for WebhookEventFilter {
    fn default() -> WebhookEventFilter {
        WebhookEventFilter { start: true, completed: true }
    }
}

impl WebhookEventFilter {
    /// Parses a list of events. Events for chunks and logs are accepted but never sent: a webhook receives whole
    /// predictions.
    pub(super) fn parse(value: &[u8]) -> Result<WebhookEventFilter, PredictionError> {
        if value == b"null" {
            return Ok(WebhookEventFilter::default());
        }
        let reason = "webhook_events_filter: expected a list of start, output, logs and completed";
        let refuse = || PredictionError::Body { reason: reason.to_owned() };
        let names: Vec<String> = serde_json::from_slice(value).map_err(|_| refuse())?;
        if !names.iter().all(|name| ["start", "output", "logs", "completed"].contains(&name.as_str())) {
            return Err(refuse());
        }
        let has = |event: &str| names.iter().any(|name| name == event);
        Ok(WebhookEventFilter { start: has("start"), completed: has("completed") })
    }
}

/// The allowed URL prefixes, and the client that calls webhooks.
#[derive(Debug)]
pub(super) struct WebhookClient {
    allowed: Vec<UrlPrefix>,
    agent: ureq::Agent,
    call_permits: Arc<Semaphore>,
}

/// The webhook of one prediction. Events that are queued when it is dropped are still sent.
#[derive(Debug)]
pub(super) struct PredictionWebhook {
    filter: WebhookEventFilter,
    queue: mpsc::Sender<String>,
}

impl WebhookClient {
    pub(super) fn new(allowed: Vec<UrlPrefix>) -> WebhookClient {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(WEBHOOK_TIME_MAX))
            .user_agent(concat!("saggar/", env!("CARGO_PKG_VERSION")));
        let at_once = Arc::new(Semaphore::new(CONCURRENT_WEBHOOKS_MAX));
        WebhookClient { allowed, agent: ureq::Agent::new_with_config(config.build()), call_permits: at_once }
    }

    /// Checks that events can be sent to this URL.
    ///
    /// # Errors
    /// Returns `Webhook`.
    pub(super) fn check(&self, address: &str) -> Result<(), PredictionError> {
        let refuse = |reason| PredictionError::Webhook { reason };
        if self.allowed.is_empty() {
            return Err(refuse("this server sends none; `saggar serve --allow-webhook ADDRESS` has it send them"));
        }
        let wanted = UrlPrefix::of_url(address).map_err(|error| refuse(error.reason()))?;
        if !self.allowed.iter().any(|allowed| allowed.allows(&wanted)) {
            return Err(refuse("the address is not one that this server was allowed to call"));
        }
        Ok(())
    }

    /// Starts sending events to a URL that was checked. They carry `trace`, the context of the request that caused them.
    pub(super) fn start(
        &self,
        address: String,
        filter: WebhookEventFilter,
        trace: Option<TraceContext>,
    ) -> PredictionWebhook {
        // A prediction has two events, so the queue is never full.
        let (queue, mut events) = mpsc::channel::<String>(2);
        let (agent, at_once) = (self.agent.clone(), Arc::clone(&self.call_permits));
        tokio::spawn(async move {
            let address_text = UrlPrefix::of_url(&address).map(|address| address.origin()).unwrap_or_default();
            while let Some(body) = events.recv().await {
                // Only the last event is retried, because it delays no other.
                let tries = if events.is_closed() && events.is_empty() { WEBHOOK_TRIES_MAX } else { 1 };
                if let Err(reason) = deliver(&agent, &at_once, &address, (&body, trace.as_ref()), tries).await {
                    tracing::warn!(to = address_text, reason, "webhook not delivered");
                }
            }
        });
        PredictionWebhook { filter, queue }
    }
}

impl PredictionWebhook {
    pub(super) fn send_started(&self, prediction: impl FnOnce() -> String) {
        if self.filter.start {
            let _ = self.queue.try_send(prediction());
        }
    }

    /// Sends the last event.
    pub(super) fn send_completed(self, prediction: impl FnOnce() -> String) {
        if self.filter.completed {
            let _ = self.queue.try_send(prediction());
        }
    }
}

/// Posts `body`. Retries with increasing pauses if the other server is temporarily unavailable.
async fn deliver(
    agent: &ureq::Agent,
    at_once: &Arc<Semaphore>,
    address: &str,
    (body, trace): (&str, Option<&TraceContext>),
    tries: u32,
) -> Result<(), String> {
    let mut pause = WEBHOOK_BACKOFF;
    for left in (0..tries).rev() {
        let permit = Arc::clone(at_once).acquire_owned().await.map_err(|error| error.to_string())?;
        let (agent, address, body) = (agent.clone(), address.to_owned(), body.to_owned());
        let trace = trace.cloned();
        let post = move || {
            let _permit = permit;
            let mut post = agent.post(&address).header("content-type", "application/json");
            if let Some(trace) = &trace {
                post = post.header("traceparent", trace.traceparent());
                if !trace.state.is_empty() {
                    post = post.header("tracestate", &trace.state);
                }
            }
            let answer = post.send(body);
            answer.map(|answer| answer.status().as_u16())
        };
        let answered = tokio::task::spawn_blocking(post).await.map_err(|error| error.to_string())?;
        let reason = match answered {
            Ok(200..=299) => return Ok(()),
            Ok(status @ (408 | 429 | 500..)) => format!("it answered {status}"),
            Ok(status) => return Err(format!("it answered {status}, so it is not tried again")),
            Err(error) => error_kind(&error).to_owned(),
        };
        if left == 0 {
            return Err(reason);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(60));
    }
    Ok(())
}

/// Describes the error without the URL, which can contain a secret.
fn error_kind(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "it did not answer in time",
        ureq::Error::HostNotFound => "its name is not known",
        ureq::Error::ConnectionFailed | ureq::Error::Io(_) => "the connection failed",
        _ => "the exchange failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_webhook_addresses_are_called() {
        let webhooks =
            |allowed: &[&str]| WebhookClient::new(allowed.iter().map(|text| text.parse().unwrap()).collect());
        let some = webhooks(&["https://example.com/hooks", "http://127.0.0.1:9000/"]);
        for good in [
            "https://example.com/hooks",
            "https://EXAMPLE.com:443/hooks/a?secret=1",
            "http://127.0.0.1:9000/x/y",
            "http://127.0.0.1:9000",
        ] {
            assert_eq!(some.check(good), Ok(()), "{good}");
        }
        for bad in [
            "http://example.com/hooks",
            "https://example.com/hooksx",
            "https://example.com/",
            "https://example.com:444/hooks",
            "https://example.com.evil.org/hooks",
            "https://example.com@evil.org/hooks",
            "https://evil.org/https://example.com/hooks",
            "https://example.com/hooks/../admin",
            "https://example.com/hooks/%2e%2e/admin",
            "https://example.com/hooks/..%2fadmin",
            "https://example.com\\@evil.org/hooks",
            "http://127.0.0.1:9001/",
            "http://localhost:9000/",
            "http://2130706433:9000/",
            "file:///etc/passwd",
            "gopher://127.0.0.1:9000/",
            "//example.com/hooks",
            "/hooks",
            "not an address",
            "",
        ] {
            assert!(some.check(bad).is_err(), "{bad}");
        }
        assert!(webhooks(&[]).check("https://example.com/hooks").unwrap_err().to_string().contains("--allow-webhook"));
        for bad in ["example.com", "https://example.com/a?b", "ftp://example.com", "https://u:p@example.com"] {
            assert!(bad.parse::<UrlPrefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn webhook_event_filters_are_parsed_or_refused() {
        assert_eq!(WebhookEventFilter::parse(b"null").unwrap(), WebhookEventFilter { start: true, completed: true });
        assert_eq!(
            WebhookEventFilter::parse(br#"["completed", "logs"]"#).unwrap(),
            WebhookEventFilter { start: false, completed: true }
        );
        assert!(WebhookEventFilter::parse(br#"["done"]"#).is_err());
        assert!(WebhookEventFilter::parse(br#""completed""#).is_err());
    }
}
