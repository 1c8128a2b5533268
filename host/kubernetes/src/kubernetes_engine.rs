//! The engine that starts workers as Kubernetes Jobs. It uses three requests of the API server: create, read and delete.

use std::fmt;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use saggar_jobs::engine::{EngineError, EngineJobState, EngineRequest, WorkerEngine};
use ureq::Agent;
use ureq::http::{Request, StatusCode};
use ureq::tls::{TlsConfig, TlsProvider};

use crate::cluster_access::{AccessError, ClusterAccess};
use crate::job_manifest::{KubernetesJobSettings, job_name};

/// The name of the engine for people.
const ENGINE: &str = "Kubernetes";
/// Maximum time of one request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a request is sent at most, if the API server fails. Later tries are the caller's.
const TRIES_MAX: u32 = 3;
/// The pause before the second try; each further one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum size of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// An engine that creates Jobs in one namespace.
pub struct KubernetesEngine {
    access: ClusterAccess,
    settings: KubernetesJobSettings,
    agent: Agent,
}

/// An answer of the API server that is no failure of it.
struct ApiAnswer {
    status: StatusCode,
    body: Vec<u8>,
}

impl KubernetesEngine {
    /// Creates an engine.
    ///
    /// # Errors
    /// `File` if the authorities of the API server cannot be read.
    pub fn new(access: ClusterAccess, settings: KubernetesJobSettings) -> Result<KubernetesEngine, AccessError> {
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(access.read_authorities()?).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_global(Some(REQUEST_TIME_MAX))
            .max_redirects(0)
            .user_agent(concat!("saggar/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(KubernetesEngine { access, settings, agent: Agent::new_with_config(config) })
    }

    fn url(&self, name: Option<&str>) -> String {
        let (server, namespace) = (&self.access.server, &self.settings.pool.namespace);
        let jobs = format!("{server}/apis/batch/v1/namespaces/{namespace}/jobs");
        name.map_or_else(|| jobs.clone(), |name| format!("{jobs}/{name}"))
    }

    /// Sends a request, again if the API server fails. Every request here can be repeated: a name makes a second creation
    /// a conflict.
    fn send(&self, method: &str, url: &str, body: &[u8]) -> Result<ApiAnswer, EngineError> {
        let mut pause = RETRY_PAUSE;
        let mut tries = 1;
        loop {
            match self.send_once(method, url, body) {
                Err(EngineError::Unavailable { .. }) if tries < TRIES_MAX => {}
                done => return done,
            }
            thread::sleep(pause);
            pause *= 2;
            tries += 1;
        }
    }

    fn send_once(&self, method: &str, url: &str, body: &[u8]) -> Result<ApiAnswer, EngineError> {
        let mut request = Request::builder().method(method).uri(url).header("accept", "application/json");
        if let Some(token) = self.access.read_token().map_err(refused)? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let sent = if body.is_empty() {
            self.agent.run(request.body(()).map_err(refused)?)
        } else {
            let request = request.header("content-type", "application/json");
            self.agent.run(request.body(body).map_err(refused)?)
        };
        let mut answer = sent.map_err(unavailable)?;
        let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let (status, body) = (answer.status(), read.map_err(unavailable)?);
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(unavailable(describe(status, &body)));
        }
        Ok(ApiAnswer { status, body })
    }
}

impl WorkerEngine for KubernetesEngine {
    fn engine_name(&self) -> &'static str {
        ENGINE
    }

    fn submit(&self, request: &EngineRequest) -> Result<(), EngineError> {
        let body = serde_json::to_vec(&self.settings.job(request)).expect("objects have text as keys");
        let answer = self.send("POST", &self.url(None), &body)?;
        match answer.status {
            status if status.is_success() || status == StatusCode::CONFLICT => Ok(()),
            status => Err(refused(describe(status, &answer.body))),
        }
    }

    fn state(&self, engine_job: &str) -> Result<EngineJobState, EngineError> {
        let answer = self.send("GET", &self.url(Some(&job_name(engine_job))), &[])?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(EngineJobState::Absent),
            StatusCode::OK => {
                let job = serde_json::from_slice(&answer.body);
                Ok(job_state(&job.map_err(|error| unavailable(format!("the answer is no Job: {error}")))?))
            }
            status => Err(refused(describe(status, &answer.body))),
        }
    }

    fn cancel(&self, engine_job: &str) -> Result<(), EngineError> {
        // Without the policy, the pods of the Job would stay.
        let url = format!("{}?propagationPolicy=Background", self.url(Some(&job_name(engine_job))));
        let answer = self.send("DELETE", &url, &[])?;
        match answer.status {
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            status => Err(refused(describe(status, &answer.body))),
        }
    }
}

/// Returns the state of a Job by its conditions.
fn job_state(job: &Job) -> EngineJobState {
    let spec = job.spec.as_ref();
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True");
    if job.metadata.deletion_timestamp.is_some() {
        return EngineJobState::Waiting("it is being removed".to_owned());
    }
    if let Some(failed) = find("Failed") {
        let texts = [failed.reason.as_deref(), failed.message.as_deref()];
        return EngineJobState::Ended(texts.into_iter().flatten().collect::<Vec<_>>().join(": "));
    }
    if find("Complete").is_some() {
        return EngineJobState::Ended("its pod succeeded".to_owned());
    }
    if status.ready.unwrap_or(0) > 0 {
        return EngineJobState::Running;
    }
    let is_suspended = spec.and_then(|spec| spec.suspend).unwrap_or(false);
    EngineJobState::Waiting(match (is_suspended, status.active.unwrap_or(0)) {
        (true, _) => "it is suspended until its queue admits it".to_owned(),
        (false, 0) => "it has no pod yet".to_owned(),
        (false, _) => "its pod is being started".to_owned(),
    })
}

/// Returns what an answer says, in one line.
fn describe(status: StatusCode, body: &[u8]) -> String {
    let message = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
    let fix = match status {
        StatusCode::UNAUTHORIZED => "; check the token of the service account, or token_file",
        StatusCode::FORBIDDEN => {
            "; the service account needs create, get and delete of jobs in batch (`saggar deploy kubernetes --job-pool` has the role)"
        }
        StatusCode::NOT_FOUND => "; create the namespace, or name another one",
        _ => "",
    };
    format!("{status}: {}{fix}", message.as_deref().unwrap_or("no message"))
}

fn unavailable(reason: impl fmt::Display) -> EngineError {
    EngineError::Unavailable { engine: ENGINE, reason: reason.to_string() }
}

fn refused(reason: impl fmt::Display) -> EngineError {
    EngineError::Refused { engine: ENGINE, reason: reason.to_string() }
}

impl fmt::Debug for KubernetesEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesEngine").field("access", &self.access).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
