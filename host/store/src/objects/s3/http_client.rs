//! The HTTP client of stores on other machines: hyper with TLS by rustls, for the crate `object_store`.
//!
//! The crate's own client would add a second HTTP stack and a second implementation of TLS.

use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{DATE, IF_NONE_MATCH};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::ClientConfig;
use tokio::time::{Instant, Sleep};

use super::store_clock::StoreClock;
use crate::certificates::{add_authorities, public_authorities};

/// The slowest transfer of a request's body that is waited for, in bytes per second.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;
/// How long an unused connection stays open. Servers of objects close theirs after about a minute.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// How long a client waits for a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimeouts {
    /// For a connection.
    pub(super) connect: Duration,
    /// For the answer to a request without a body, and for the next bytes of an answer.
    pub(super) answer: Duration,
}

/// Makes the clients of a store.
#[derive(Clone, Debug)]
pub(super) struct HyperConnector {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    answer_time: Duration,
    clock: Arc<StoreClock>,
}

impl HyperConnector {
    /// Returns a connector that trusts the public authorities and those in the file `authorities`. Answers set the clock.
    ///
    /// # Errors
    /// Returns a sentence about the file if it cannot be read or is not in PEM form.
    pub(super) fn new(
        authorities: Option<&Path>,
        timeouts: RequestTimeouts,
        clock: Arc<StoreClock>,
    ) -> Result<HyperConnector, String> {
        let mut roots = public_authorities();
        if let Some(file) = authorities {
            add_authorities(&mut roots, file).map_err(|error| format!("AWS_CA_BUNDLE: {error}"))?;
        }
        // The provider is named, because another one could have become the process's default.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeouts.connect));
        let https =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .build(https);
        Ok(HyperConnector { client, answer_time: timeouts.answer, clock })
    }
}

impl HttpConnector for HyperConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        Ok(HttpClient::new(HyperService { connector: self.clone(), allow_http }))
    }
}

/// A client.
#[derive(Debug)]
struct HyperService {
    connector: HyperConnector,
    /// Whether requests without TLS are allowed.
    allow_http: bool,
}

#[async_trait]
impl HttpService for HyperService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.allow_http && request.uri().scheme_str() != Some("https") {
            let reason = "a request without TLS is not sent, because the endpoint is not an http:// URL";
            return Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other(reason)));
        }
        let HyperConnector { client, answer_time, clock } = &self.connector;
        let transfer = Duration::from_secs(request.body().content_length() as u64 / SLOWEST_BYTES_PER_SECOND);
        // A create-only put never overwrites anything, so it can be repeated although it may have been carried out. The
        // crate repeats a put only if the error means that it was not sent.
        let is_repeatable = request.headers().contains_key(IF_NONE_MATCH);
        let answered = tokio::time::timeout(*answer_time + transfer, client.request(request)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(client_error(&error, is_repeatable)),
            Err(_) if is_repeatable => return Err(timeout_error(HttpErrorKind::Request)),
            Err(_) => return Err(timeout_error(HttpErrorKind::Timeout)),
        };
        if let Some(date) = response.headers().get(DATE).and_then(|date| date.to_str().ok()) {
            clock.observe(date);
        }
        Ok(response.map(|body| HttpResponseBody::new(WatchedBody::new(body, *answer_time))))
    }
}

fn timeout_error(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))
}

/// Returns the error with its kind, by which the crate decides whether the request is repeated.
fn client_error(error: &ClientError, is_repeatable: bool) -> HttpError {
    let mut texts = vec![error.to_string()];
    let mut kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        if let Some(cause) = cause.downcast_ref::<hyper::Error>()
            && kind == HttpErrorKind::Unknown
        {
            kind = hyper_error_kind(cause);
        }
        next = cause.source();
    }
    if is_repeatable && matches!(kind, HttpErrorKind::Timeout | HttpErrorKind::Interrupted) {
        kind = HttpErrorKind::Request;
    }
    HttpError::new(kind, io::Error::other(texts.join(": ")))
}

fn hyper_error_kind(error: &hyper::Error) -> HttpErrorKind {
    if error.is_canceled() {
        // The connection was closed before anything was sent.
        HttpErrorKind::Request
    } else if error.is_parse() {
        HttpErrorKind::Decode
    } else if error.is_timeout() {
        HttpErrorKind::Timeout
    } else {
        HttpErrorKind::Interrupted
    }
}

/// The body of an answer, which ends with an error if no byte arrives for some time.
struct WatchedBody {
    body: Incoming,
    answer_time: Duration,
    silence: Pin<Box<Sleep>>,
}

impl WatchedBody {
    fn new(body: Incoming, answer_time: Duration) -> WatchedBody {
        WatchedBody { body, answer_time, silence: Box::pin(tokio::time::sleep(answer_time)) }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let until = Instant::now() + self.answer_time;
            self.silence.as_mut().reset(until);
            let failed = |error: hyper::Error| HttpError::new(hyper_error_kind(&error), error);
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        self.silence.as_mut().poll(context).map(|()| Some(Err(timeout_error(HttpErrorKind::Timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
