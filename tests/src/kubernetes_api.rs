//! An API server of Kubernetes with the Jobs of one namespace, as a double: it checks bodies with the types of Kubernetes, and
//! runs the containers of Jobs that are admitted as processes of this machine.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::EnvVar;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::binary;

/// The path of the Jobs.
pub const JOBS_PATH: &str = "/apis/batch/v1/namespaces/ml/jobs";
/// The token that clients must send.
pub const TOKEN: &str = "service-account-token";

/// The double. It ends with the test's process.
#[derive(Debug)]
pub struct KubernetesApi {
    address: String,
    state: Arc<Mutex<ApiState>>,
}

#[derive(Debug, Default)]
struct ApiState {
    jobs: BTreeMap<String, Job>,
    /// `POST saggar-a-1-1 201`: the method, the Job and the status of each answer.
    requests: Vec<String>,
    /// Answers 500 that are given to the next requests.
    failures: u32,
}

impl KubernetesApi {
    /// Starts the double.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start() -> KubernetesApi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let api = KubernetesApi { address, state: Arc::default() };
        let state = Arc::clone(&api.state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client can end in the middle of a request.
                let _ = answer(stream, &state);
            }
        });
        api
    }

    /// Returns its URL.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Answers the next requests with 500.
    pub fn fail(&self, requests: u32) {
        self.state.lock().failures = requests;
    }

    /// Returns the requests so far: `POST saggar-a-1-1 201`.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// Returns a Job, if there is one with this name.
    pub fn job(&self, name: &str) -> Option<Job> {
        self.state.lock().jobs.get(name).cloned()
    }

    /// Removes a Job without a request, as someone with kubectl does.
    pub fn forget(&self, name: &str) {
        self.state.lock().jobs.remove(name);
    }

    /// Sets a condition of a Job: `Failed`, `Complete`.
    ///
    /// # Panics
    /// If there is no such Job.
    pub fn set_condition(&self, name: &str, kind: &str, reason: &str) {
        let mut state = self.state.lock();
        let job = state.jobs.get_mut(name).expect("the Job exists");
        let status = json!({ "conditions": [{ "type": kind, "status": "True", "reason": reason }] });
        job.status = serde_json::from_value(status).expect("it is a status");
    }

    /// Admits a Job, and returns the command of its container: the image's program with the Job's arguments and variables.
    /// `secrets` has the variables of secrets, by `SECRET/KEY`, and those of whole secrets by `SECRET`.
    ///
    /// # Panics
    /// If there is no such Job, or if it refers to another secret.
    pub fn admit(&self, name: &str, secrets: &BTreeMap<String, String>) -> Command {
        let mut state = self.state.lock();
        let spec = state.jobs.get_mut(name).and_then(|job| job.spec.as_mut()).expect("the Job exists");
        spec.suspend = Some(false);
        let pod = spec.template.spec.clone().expect("a pod");
        let container = &pod.containers[0];
        let mut command = Command::new(binary());
        command.args(container.args.iter().flatten());
        for EnvVar { name: variable, value, value_from } in container.env.iter().flatten() {
            let from = value_from.as_ref();
            let secret = from.and_then(|from| from.secret_key_ref.as_ref());
            let value = match (value, secret) {
                (Some(value), _) => Some(value.clone()),
                (None, Some(secret)) => {
                    let found = secrets.get(&format!("{}/{}", secret.name, secret.key)).cloned();
                    assert!(found.is_some() || secret.optional == Some(true), "there is no secret {secret:?}");
                    found
                }
                (None, None) => Some(format!("{name}-pod")),
            };
            command.envs(value.map(|value| (variable, value)));
        }
        command
    }
}

/// Answers one request.
fn answer(stream: TcpStream, state: &Mutex<ApiState>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut is_authorized) = (String::new(), 0, false);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => is_authorized = value.trim() == format!("Bearer {TOKEN}"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, document) = match path.strip_prefix(JOBS_PATH) {
        _ if !is_authorized => (401, failure("Unauthorized")),
        None => (404, failure("there is no such path")),
        Some(name) => state.lock().respond(method, name.trim_start_matches('/'), target, &body),
    };
    let text = document.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    reader.into_inner().write_all((head + &text).as_bytes())
}

fn failure(message: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message })
}

impl ApiState {
    fn respond(&mut self, method: &str, name: &str, target: &str, body: &[u8]) -> (u16, Value) {
        let (name, (status, document)) = match (method, self.failures) {
            (_, 1..) => {
                self.failures -= 1;
                (name.to_owned(), (500, failure("etcdserver: request timed out")))
            }
            ("POST", 0) => self.create(body),
            ("GET", 0) => (name.to_owned(), self.read(name)),
            ("DELETE", 0) => (name.to_owned(), self.remove(name, target)),
            (_, 0) => (name.to_owned(), (405, failure("no such method"))),
        };
        self.requests.push(format!("{method} {name} {status}"));
        (status, document)
    }

    fn create(&mut self, body: &[u8]) -> (String, (u16, Value)) {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let job: Job = match serde_json::from_value(sent.clone()) {
            // A field that Kubernetes does not know is lost.
            Ok(job) if serde_json::to_value(&job).is_ok_and(|known| known == sent) => job,
            Ok(_) => return (name, (400, failure("strict decoding error: unknown field"))),
            Err(error) => return (name, (400, failure(&error.to_string()))),
        };
        if self.jobs.contains_key(&name) {
            return (name.clone(), (409, failure("already exists")));
        }
        self.jobs.insert(name.clone(), job);
        (name, (201, sent))
    }

    fn read(&self, name: &str) -> (u16, Value) {
        let found = self.jobs.get(name).and_then(|job| serde_json::to_value(job).ok());
        found.map_or((404, failure("not found")), |job| (200, job))
    }

    fn remove(&mut self, name: &str, target: &str) -> (u16, Value) {
        // Without a policy, the pods of a Job would be left over.
        if !target.ends_with("?propagationPolicy=Background") {
            return (400, failure("the test expects a policy"));
        }
        match self.jobs.remove(name) {
            Some(_) => (200, json!({ "apiVersion": "v1", "kind": "Status", "status": "Success" })),
            None => (404, failure("not found")),
        }
    }
}
