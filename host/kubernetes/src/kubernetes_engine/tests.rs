use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use saggar_project::KubernetesPoolSection;
use serde_json::{Value, json};

use super::*;

pub(crate) fn pool() -> KubernetesPoolSection {
    KubernetesPoolSection {
        image: "registry.example.com/saggar:0.1.0".to_owned(),
        namespace: "ml".to_owned(),
        queue: None,
        limits: BTreeMap::new(),
        cpu: None,
        memory: None,
        database_secret: "saggar-database".to_owned(),
        objects_secret: "saggar-objects".to_owned(),
        api_server: None,
        token_file: None,
        ca_file: None,
    }
}

pub(crate) fn request() -> EngineRequest {
    EngineRequest { job: "digits-7".to_owned(), attempt: 2, project: "digits".to_owned(), hosts: 1 }
}

/// A status and a body, or a closed connection.
type ScriptedAnswer = Option<(u16, Value)>;

/// An API server that gives the answers of a script: a status and a body for each request, or a closed connection.
struct ScriptedServer {
    address: String,
    answers: Arc<Mutex<VecDeque<ScriptedAnswer>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl ScriptedServer {
    fn start() -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = ScriptedServer { address, answers: Arc::default(), requests: Arc::default() };
        let (answers, requests) = (Arc::clone(&server.answers), Arc::clone(&server.requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &answers, &requests);
            }
        });
        server
    }

    /// Returns an engine with a token, after `answers` have been put into the script.
    fn engine(&self, answers: &[Option<(u16, Value)>]) -> KubernetesEngine {
        self.answers.lock().unwrap().extend(answers.iter().cloned());
        let access = ClusterAccess { server: self.address.clone(), token_file: None, ca_file: None };
        let settings = KubernetesJobSettings { pool: pool(), labels: BTreeMap::new(), variables: BTreeMap::new() };
        KubernetesEngine::new(access, settings).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }
}

fn answer(stream: TcpStream, answers: &Mutex<VecDeque<Option<(u16, Value)>>>, requests: &Mutex<Vec<(String, Value)>>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if lower.starts_with("authorization:") || head.is_empty() {
            head.push_str(line.trim_end().trim_end_matches(" HTTP/1.1"));
            head.push(' ');
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    requests.lock().unwrap().push((head.trim_end().to_owned(), body));
    let Some((status, body)) = answers.lock().unwrap().pop_front().expect("the script has an answer") else { return };
    let body = body.to_string();
    let mut stream = reader.into_inner();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).unwrap();
}

fn status(code: u16, message: &str) -> Option<(u16, Value)> {
    Some((code, json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code })))
}

const JOBS: &str = "/apis/batch/v1/namespaces/ml/jobs";

#[test]
fn a_submission_creates_a_job_and_an_existing_one_is_a_submission() {
    let server = ScriptedServer::start();
    let engine =
        server.engine(&[Some((201, json!({}))), status(409, "jobs.batch \"saggar-digits-7-2\" already exists")]);
    engine.submit(&request()).unwrap();
    engine.submit(&request()).unwrap();
    assert_eq!(server.requests(), [format!("POST {JOBS}"), format!("POST {JOBS}")]);
    // The API server knows every field.
    let sent = server.requests.lock().unwrap()[0].1.clone();
    let typed: Job = serde_json::from_value(sent.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), sent);
}

#[test]
fn a_failing_api_server_is_asked_three_times() {
    let server = ScriptedServer::start();
    let engine = server.engine(&[status(500, "etcd"), None, Some((201, json!({})))]);
    engine.submit(&request()).unwrap();
    assert_eq!(server.requests().len(), 3);
    let engine = server.engine(&[status(503, "overloaded"), status(429, "slow down"), status(500, "etcd is gone")]);
    let error = engine.submit(&request()).unwrap_err();
    assert!(matches!(&error, EngineError::Unavailable { reason, .. } if reason.contains("etcd is gone")), "{error:?}");
}

#[test]
fn a_refusal_is_not_repeated_and_says_how_to_fix_it() {
    let server = ScriptedServer::start();
    for (code, message, fix) in [
        (403, "jobs.batch is forbidden", "create, get and delete of jobs"),
        (401, "Unauthorized", "token of the service account"),
        (404, "namespaces \"ml\" not found", "create the namespace"),
        (422, "spec.template.spec.containers[0].image: Required value", "Required value"),
    ] {
        let engine = server.engine(&[status(code, message)]);
        let error = engine.submit(&request()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EngineError::Refused { .. }), "{text}");
        assert!(text.contains(message) && text.contains(fix), "{text}");
    }
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn the_state_of_a_job_follows_its_conditions() {
    let condition = |kind: &str| {
        json!({ "spec": { "template": {} }, "status": { "conditions": [
            { "type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed" }] } })
    };
    let waiting = |text: &str| EngineJobState::Waiting(text.to_owned());
    for (job, expected) in [
        (json!({ "spec": { "suspend": true, "template": {} } }), waiting("it is suspended until its queue admits it")),
        (json!({ "spec": { "template": {} } }), waiting("it has no pod yet")),
        (json!({ "spec": { "template": {} }, "status": { "active": 1 } }), waiting("its pod is being started")),
        (json!({ "spec": { "template": {} }, "status": { "active": 1, "ready": 1 } }), EngineJobState::Running),
        (condition("Failed"), EngineJobState::Ended("BackoffLimitExceeded: it failed".to_owned())),
        (condition("Complete"), EngineJobState::Ended("its pod succeeded".to_owned())),
        (json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), waiting("it is being removed")),
    ] {
        let server = ScriptedServer::start();
        let job = job.as_object().cloned().unwrap();
        let mut document = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": {} });
        document.as_object_mut().unwrap().extend(job);
        let engine = server.engine(&[Some((200, document))]);
        assert_eq!(engine.state("saggar-digits-7-2"), Ok(expected));
        assert_eq!(server.requests(), [format!("GET {JOBS}/saggar-digits-7-2")]);
    }
    let server = ScriptedServer::start();
    assert_eq!(server.engine(&[status(404, "not found")]).state("saggar-digits-7-2"), Ok(EngineJobState::Absent));
}

#[test]
fn a_removal_takes_the_pods_too_and_accepts_that_there_is_no_job() {
    let server = ScriptedServer::start();
    let engine = server.engine(&[Some((200, json!({}))), status(404, "not found")]);
    engine.cancel("saggar-digits-7-2").unwrap();
    engine.cancel("saggar-digits-7-2").unwrap();
    let expected = format!("DELETE {JOBS}/saggar-digits-7-2?propagationPolicy=Background");
    assert_eq!(server.requests(), [expected.clone(), expected]);
}

#[test]
fn the_token_is_read_for_each_request_and_is_in_no_text() {
    let place = tempfile::tempdir().unwrap();
    let token_file = place.path().join("token");
    let server = ScriptedServer::start();
    let access = ClusterAccess { token_file: Some(token_file.clone()), ..server.engine(&[]).access };
    let settings = KubernetesJobSettings { pool: pool(), labels: BTreeMap::new(), variables: BTreeMap::new() };
    let engine = KubernetesEngine::new(access, settings).unwrap();
    for token in ["first", "renewed"] {
        std::fs::write(&token_file, token).unwrap();
        server.answers.lock().unwrap().push_back(status(404, "not found"));
        engine.state("a").unwrap();
        let asked = server.requests().pop().unwrap();
        assert!(asked.to_ascii_lowercase().ends_with(&format!("authorization: bearer {token}")), "{asked}");
    }
    assert!(!format!("{engine:?}").contains("renewed"));
    std::fs::remove_file(&token_file).unwrap();
    let error = engine.state("a").unwrap_err();
    assert!(matches!(error, EngineError::Refused { .. }) && error.to_string().contains("token"), "{error}");
}
