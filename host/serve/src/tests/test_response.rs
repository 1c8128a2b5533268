//! A response as tests read it.

use axum::body::{Bytes, to_bytes};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

/// A response, read completely.
#[derive(Debug)]
pub(super) struct TestResponse {
    pub(super) status: StatusCode,
    pub(super) headers: axum::http::HeaderMap,
    pub(super) body: Bytes,
}

impl TestResponse {
    pub(super) async fn from_response(response: Response) -> TestResponse {
        let (parts, body) = response.into_parts();
        TestResponse { status: parts.status, headers: parts.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the error's status, code and text, after checking that its form is complete.
    #[track_caller]
    pub(super) fn error(&self) -> (u16, String, String) {
        let body = self.json();
        let text = |key: &str| body[key].as_str().unwrap().to_owned();
        assert_eq!(text("request_id"), self.header("x-request-id"));
        assert_eq!(self.header("content-type"), "application/json");
        assert!(body["hint"].is_string());
        (self.status.as_u16(), text("code"), text("error"))
    }
}
