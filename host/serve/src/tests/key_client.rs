//! A client with a key, for a listener that requires one.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use saggar_store::keys::{KeyScope, NewKey};
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{ServerFixture, TestResponse};
use crate::access::{Exposure, ListenPolicy};

/// A client that sends requests with its key.
pub(super) struct KeyClient {
    pub(super) router: Router,
    pub(super) bearer: String,
}

impl KeyClient {
    /// Creates a key with these scopes. An empty list of projects does not limit it.
    pub(super) fn new(fixture: &ServerFixture, name: &str, scopes: &[KeyScope], projects: &[&str]) -> KeyClient {
        let projects: Vec<String> = projects.iter().map(|project| (*project).to_owned()).collect();
        let new = NewKey {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            projects: (!projects.is_empty()).then_some(projects),
            rate: None,
            quota: None,
            max_running_jobs: None,
            gpu_seconds: None,
            expires_ms: None,
        };
        let bearer = format!("Bearer {}", fixture.home.keys().create(new, fixture.app.now_ms()).unwrap().1);
        KeyClient {
            router: fixture.app.router_for(ListenPolicy { exposure: Exposure::Network, requires_key: true }),
            bearer,
        }
    }

    /// Returns a builder for a JSON request with the key.
    pub(super) fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.header("content-type", "application/json").header("authorization", &self.bearer)
    }

    /// Sends the request and reads the whole response.
    pub(super) async fn send(&self, request: Request<Body>) -> TestResponse {
        TestResponse::from_response(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// Sends JSON, or no body if `body` is null.
    pub(super) async fn send_json(&self, method: &str, path: &str, body: &Value) -> TestResponse {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(self.request(method, path).body(body).unwrap()).await
    }

    /// Gets JSON, and asserts success.
    pub(super) async fn get_json(&self, path: &str) -> Value {
        let answer = self.send_json("GET", path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// Returns status, code, text and hint of an error. `name` is replaced, so that errors about different names can be
    /// compared.
    pub(super) async fn error_without_name(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        name: &str,
    ) -> (u16, String, String, String) {
        let answer = self.send_json(method, path, body).await;
        assert!(!answer.status.is_success(), "{method} {path} was not refused: {}", answer.text());
        let hint = answer.json()["hint"].to_string();
        let (status, code, text) = answer.error();
        (status, code, text.replace(name, "NAME"), hint)
    }
}
