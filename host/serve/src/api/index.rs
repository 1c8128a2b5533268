//! `GET /`: what this server is and has, for programs as JSON, for people as a page.

use std::fmt::Write;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

use crate::app::App;
use crate::models::ModelStatus;

/// `GET /`. A client that names HTML gets the page, every other one the JSON.
pub(crate) async fn index(State(app): State<App>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let models = app.models().list();
    if accept.contains("text/html") {
        return Html(page(&models)).into_response();
    }
    let models: Vec<_> = models.iter().map(super::models::summary).collect();
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "name": "saggar", "version": version, "routes": App::paths(), "models": models })).into_response()
}

fn page(models: &[ModelStatus]) -> String {
    let mut rows = String::new();
    for model in models {
        let serving = model.serving.as_ref();
        let name = escape(&model.name);
        let state =
            serving.map_or_else(|| "no version serves yet".to_owned(), |s| format!("version {} serves", s.version));
        let form = serving.and_then(|serving| serving.predictor().signature().inputs.first()).map_or_else(
            || "-H 'content-type: application/json' -d @input.json".to_owned(),
            |port| match port.semantics.as_deref() {
                Some("image") => format!("-F {}=@picture.png", escape(&port.name)),
                Some("text") => format!("-F {}='To be'", escape(&port.name)),
                _ => "-H 'content-type: application/json' -d @input.json".to_owned(),
            },
        );
        writeln!(rows, "<h2>{name}</h2>\n<p>{state}</p>\n<pre>curl $HOST/models/{name}/predict {form}</pre>")
            .expect("a string takes whatever is written");
    }
    if models.is_empty() {
        rows.push_str(
            "<p>No models yet. A training that publishes makes one:</p>\n<pre>saggar run --task train -f</pre>\n",
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>saggar</title>\n\
         <style>body{{font:16px/1.5 system-ui;max-width:48rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}}\
         pre{{overflow:auto;padding:.5rem;border:1px solid}}</style>\n<h1>saggar {}</h1>\n{rows}\
         <p><a href=\"/api/v1/models\">models</a> · <a href=\"/api/v1/jobs\">jobs</a> · \
         <a href=\"/api/v1/datasets\">datasets</a> · <a href=\"/metrics\">metrics</a> · \
         <a href=\"/readyz?verbose\">readiness</a></p>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Text as HTML. Names come from plugins.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
