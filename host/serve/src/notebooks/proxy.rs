//! Forwards a request to the JupyterLab of a job, and its response back. Both are streamed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri, Version, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures::StreamExt;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use saggar_jobs::NotebookAddress;
use saggar_notebook::{base_path, socket};
use tokio::time::timeout;

use super::notebook_access::{TokenCarrier, find_token, has_authorization, token_cookie};
use super::websocket;
use crate::access::AccessError;
use crate::app::AppState;
use crate::connection::ConnectionActivity;
use crate::error::ApiError;
use crate::limits::{BODY_IDLE_MAX, NOTEBOOK_BODY_BYTES_MAX};

/// The headers that belong to one connection, besides those of an upgrade.
const CONNECTION_HEADERS: [&str; 5] = ["keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"];

/// Handles every method of the paths of notebooks.
pub(super) async fn forward(
    State(app): State<AppState>,
    Path(segments): Path<Vec<(String, String)>>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = segments.into_iter().find(|(name, _)| name == "notebook").map(|(_, job)| job).unwrap_or_default();
    let Some(notebook) = app.jobs().running_notebook(&job) else { return Err(not_running(&job)) };
    let Some(carrier) = find_token(request.uri(), request.headers(), &notebook) else {
        return Err(AccessError::NotebookToken { job }.into());
    };
    let connection = request.extensions().get::<Arc<ConnectionActivity>>().cloned();
    if let Some(connection) = &connection {
        connection.mark_authenticated();
    }
    if request.uri().path() == base_path(&job).trim_end_matches('/') {
        return Ok(Redirect::permanent(&base_path(&job)).into_response());
    }
    let mut response = exchange(&job, &notebook, connection.as_deref(), request).await?;
    if carrier == TokenCarrier::Address
        && let Some(cookie) = token_cookie(&job, &notebook)
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn not_running(job: &str) -> ApiError {
    let hint = "`saggar ps` lists the running ones, and `saggar run --mode notebook` starts one".to_owned();
    ApiError::NotFound { kind: "running notebook", name: job.chars().take(80).collect(), hint }
}

/// Sends the request on a new connection to the notebook, and returns its response. The connection of a WebSocket becomes a
/// tunnel.
async fn exchange(
    job: &str,
    notebook: &NotebookAddress,
    connection: Option<&ConnectionActivity>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let failed =
        |reason: &dyn std::fmt::Display| ApiError::NotebookSilent { job: job.to_owned(), reason: reason.to_string() };
    check_length(request.headers())?;
    let upgrade = websocket::is_requested(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let stream = socket::connect(&notebook.socket).await.map_err(|error| failed(&error))?;
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    // It ends with the response, or when the client is gone and drops it.
    tokio::spawn(driver.with_upgrades());
    let outgoing = outgoing_request(notebook, request, upgrade.is_some());
    let response = sender.send_request(outgoing).await.map_err(|error| failed(&error))?;
    let mut response = match upgrade {
        Some(client) if websocket::is_accepted(&response) => {
            let (response, tunnel) = websocket::tunnel(client, response);
            let Some(connection) = connection else { return Err(failed(&"the request has no connection")) };
            connection.set_tunnel(tunnel);
            return Ok(response);
        }
        Some(_) | None => response.map(Body::new),
    };
    remove_connection_headers(response.headers_mut());
    response.headers_mut().remove(header::CONNECTION);
    Ok(response)
}

/// Refuses a body whose length says that it is too large.
fn check_length(headers: &HeaderMap) -> Result<(), ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match length {
        Some(length) if length > NOTEBOOK_BODY_BYTES_MAX => {
            Err(ApiError::TooLarge { bytes_max: NOTEBOOK_BODY_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

/// Returns the request for the notebook: the client's without what belongs to the client's connection, and without a key of
/// the server.
fn outgoing_request(notebook: &NotebookAddress, request: Request, is_upgrade: bool) -> Request {
    let (mut parts, body) = request.into_parts();
    parts.version = Version::HTTP_11;
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        // HTTP/2 has the host in the address.
        parts.headers.insert(header::HOST, host);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    if !has_authorization(&parts.headers, notebook) {
        parts.headers.remove(header::AUTHORIZATION);
    }
    remove_connection_headers(&mut parts.headers);
    if !is_upgrade {
        parts.headers.remove(header::CONNECTION);
        parts.headers.remove(header::UPGRADE);
    }
    parts.extensions = axum::http::Extensions::new();
    Request::from_parts(parts, limited_body(body, BODY_IDLE_MAX))
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}

/// Returns a body that fails if it is too large, or if nothing of it arrives for `idle`.
fn limited_body(body: Body, idle: Duration) -> Body {
    use axum::body::HttpBody;

    if body.is_end_stream() {
        return Body::empty();
    }
    let stream = Limited::new(body, NOTEBOOK_BODY_BYTES_MAX).into_data_stream();
    Body::from_stream(futures::stream::unfold(Some(stream), move |stream| async move {
        let mut stream = stream?;
        match timeout(idle, stream.next()).await {
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(stream))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(None) => None,
            Err(late) => Some((Err(late.into()), None)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use saggar_notebook::NotebookToken;

    use super::*;

    #[test]
    fn the_notebook_gets_no_key_of_the_server() {
        let notebook = NotebookAddress { socket: "/s".into(), token: NotebookToken::new("ab12".to_owned()) };
        let sent = |authorization: &str| {
            let request = Request::get("http://host:5000/notebooks/a-1/api/status?x=1")
                .header(header::AUTHORIZATION, authorization)
                .header(header::CONNECTION, "keep-alive")
                .header("x-xsrftoken", "1")
                .body(Body::empty())
                .unwrap();
            outgoing_request(&notebook, request, false)
        };
        let request = sent("Bearer sgr_key");
        assert_eq!(request.uri(), "/notebooks/a-1/api/status?x=1");
        let headers = request.headers();
        assert_eq!((headers.get(header::AUTHORIZATION), headers.get(header::CONNECTION)), (None, None));
        let text = |name: &str| headers[name].to_str().unwrap();
        assert_eq!((text("host"), text("x-xsrftoken")), ("host:5000", "1"));
        assert_eq!(sent("token ab12").headers()[header::AUTHORIZATION], "token ab12");
    }

    #[tokio::test]
    async fn a_body_that_stops_or_is_too_large_fails() {
        let stuck = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let body = limited_body(Body::from_stream(stuck), Duration::from_millis(10));
        assert!(axum::body::to_bytes(body, usize::MAX).await.is_err());
        let body = Body::from(vec![0; NOTEBOOK_BODY_BYTES_MAX + 1]);
        assert!(axum::body::to_bytes(limited_body(body, Duration::from_secs(30)), usize::MAX).await.is_err());
        let body = limited_body(Body::from("text"), Duration::from_secs(30));
        assert_eq!(axum::body::to_bytes(body, usize::MAX).await.unwrap(), "text");
    }
}
