//! The console: the browser interface. It consists of static files in this binary and uses only the public REST
//! interface.
//!
//! Asset paths contain a digest of all assets, so that a browser can cache them forever and never mixes two versions.
//! The page that references them is revalidated each time. The content security policy allows only content from this
//! server: no inline script, no other host. The sources are in `host/serve/console`. Files below `vendor` there are
//! unmodified third-party code with its licences.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use saggar_store::digest::Sha256Hasher;

use super::static_content::{StaticContent, cacheable_response};
use crate::error::ApiError;

/// The placeholder for the digest in the page.
const VERSION_PLACEHOLDER: &str = "/console/VERSION/";
const CONTENT_SECURITY_POLICY_VALUE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

struct ConsoleAsset {
    name: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($name:literal),* $(,)?) => {
        &[$(ConsoleAsset { name: $name, text: include_str!(concat!("../../console/", $name)) }),*]
    };
}

const PAGE_TEMPLATE: &str = include_str!("../../console/index.html");
const ASSETS: &[ConsoleAsset] = assets![
    "actions.js",
    "ancestry.js",
    "annotations.js",
    "answer.js",
    "api.js",
    "attempts.js",
    "card.js",
    "chart.js",
    "charts.js",
    "checks.js",
    "columns.js",
    "command.js",
    "compare.js",
    "comparison.js",
    "curl.js",
    "datasets.js",
    "devices.js",
    "dialogs.js",
    "dom.js",
    "droparea.js",
    "empty.js",
    "events.js",
    "experiments.css",
    "experiments.js",
    "facts.js",
    "fields.js",
    "files.js",
    "follow.js",
    "form.css",
    "format.js",
    "frame.js",
    "graph.css",
    "graph.js",
    "graphblocks.js",
    "histogram.js",
    "job.css",
    "job.js",
    "jobform.js",
    "jobs.css",
    "jobs.js",
    "layered.js",
    "lineage.js",
    "log.js",
    "logged.css",
    "logged.js",
    "loggeditems.js",
    "main.js",
    "mark.svg",
    "markdown.js",
    "members.js",
    "modelgraph.js",
    "models.css",
    "models.js",
    "newjob.js",
    "newnotebook.js",
    "notebook.js",
    "orders.js",
    "overview.css",
    "overview.js",
    "pad.js",
    "panel.js",
    "parallel.js",
    "past.js",
    "pastcharts.js",
    "picks.js",
    "picture.js",
    "pipelines.js",
    "playground.css",
    "playground.js",
    "poll.js",
    "request.js",
    "restart.js",
    "rows.js",
    "series.js",
    "sha256.js",
    "sides.js",
    "snapshot.js",
    "state.js",
    "submission.js",
    "svg.js",
    "sweeps.js",
    "theme.css",
    "timeline.css",
    "timeline.js",
    "timelinepng.js",
    "traffic.js",
    "upload.js",
    "vendor/uPlot.LICENSE",
    "vendor/uPlot.esm.js",
    "vendor/uPlot.min.css",
    "view.js",
    "watch.js",
    "workers.js",
];

/// The digest of the page and all assets, as used in paths and entity tags.
static FINGERPRINT: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = Sha256Hasher::new();
    hasher.update_field(PAGE_TEMPLATE.as_bytes());
    for asset in ASSETS {
        hasher.update_field(asset.name.as_bytes());
        hasher.update_field(asset.text.as_bytes());
    }
    hasher.finish().hex()[..16].to_owned()
});
static INDEX_PAGE: LazyLock<String> =
    LazyLock::new(|| PAGE_TEMPLATE.replace(VERSION_PLACEHOLDER, &format!("/console/{}/", *FINGERPRINT)));

/// Returns the page, for a client that accepts HTML.
pub(crate) fn console_page(request: &HeaderMap) -> Response {
    let mut response = cacheable_response(request, console_content("text/html; charset=utf-8", &INDEX_PAGE));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY_VALUE));
    headers.insert(CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Clients that do not accept HTML get JSON at the same path.
    headers.insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// `GET /console/{fingerprint}/{*name}`: returns an asset of the page.
pub(crate) async fn console_asset(
    Path((fingerprint, name)): Path<(String, String)>,
    request: HeaderMap,
) -> Result<Response, ApiError> {
    let asset = ASSETS.iter().find(|asset| asset.name == name && fingerprint == *FINGERPRINT);
    let asset = asset.ok_or_else(|| ApiError::NotFound {
        kind: "console file",
        name: name.chars().take(80).collect(),
        hint: "reload the page: this server has another version of it".to_owned(),
    })?;
    let mut response = cacheable_response(&request, console_content(media_type(asset.name), asset.text));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    Ok(response)
}

/// Returns the content of a file of the console, which the fingerprint of the whole console names.
fn console_content(media_type: &'static str, text: &'static str) -> StaticContent {
    StaticContent { media_type, fingerprint: &FINGERPRINT, text }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("LICENSE") => "text/plain; charset=utf-8",
        _ => "image/svg+xml",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_console_is_in_the_binary() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/console"));
        let mut files = BTreeSet::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let known = ASSETS.iter().map(|asset| asset.name).chain(["index.html"]).map(str::to_owned);
        assert_eq!(files, known.collect());
    }

    /// A path that the server does not serve would fail only in the browser.
    #[test]
    fn the_console_uses_only_paths_that_are_served() {
        let names: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.name).collect();
        let mut named = BTreeSet::new();
        for rest in PAGE_TEMPLATE.split(VERSION_PLACEHOLDER).skip(1) {
            named.insert(rest.split('"').next().unwrap());
        }
        for asset in ASSETS {
            for import in [" from './", " import('./"] {
                for rest in asset.text.split(import).skip(1) {
                    named.insert(rest.split('\'').next().unwrap());
                }
            }
        }
        // Licences are for people, so the page does not reference them.
        named.extend(names.iter().filter(|name| name.ends_with(".LICENSE")));
        assert_eq!(named, names);
    }

    #[test]
    fn the_console_loads_nothing_from_other_hosts_and_no_inline_script() {
        let own = ASSETS.iter().filter(|asset| !asset.name.starts_with("vendor/"));
        for text in own.map(|asset| asset.text).chain([PAGE_TEMPLATE]) {
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1:5000", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{elsewhere}");
        }
        assert!(
            !PAGE_TEMPLATE.contains("style=")
                && !PAGE_TEMPLATE.contains("<style")
                && !PAGE_TEMPLATE.contains(" onclick=")
        );
        assert_eq!(
            PAGE_TEMPLATE.matches("<script").count(),
            PAGE_TEMPLATE.matches("<script type=\"module\" src=\"").count()
        );
    }
}
