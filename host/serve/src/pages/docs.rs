//! The documentation: the Markdown pages of `host/docs` are in this binary and are served as HTML below `/docs`, without network.
//!
//! The pages are an mdBook: `SUMMARY.md` lists them, and a page is served under the path that mdBook gives it, so
//! `start/install.md` is `/docs/start/install.html`. Links between pages name the Markdown files, so that they work in a source
//! browser too. All pages are rendered once, when the first one is requested.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use include_dir::{Dir, include_dir};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use saggar_store::digest::Sha256Hasher;

use super::static_content::{StaticContent, cacheable_response};
use crate::error::ApiError;

/// The Markdown pages and their images.
static SOURCES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../docs");
const STYLE: &str = include_str!("../../docs/style.css");
const PAGE_TEMPLATE: &str = include_str!("../../docs/page.html");

/// The page that lists the others.
const SUMMARY: &str = "SUMMARY.md";
/// The page at `/docs` itself.
const INDEX: &str = "README.html";
const CONTENT_SECURITY_POLICY_VALUE: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page, an image or the style sheet, as it is served.
struct RenderedFile {
    media_type: &'static str,
    fingerprint: String,
    text: String,
}

/// Every page and image, by its path below `/docs/`.
static CONTENTS: LazyLock<BTreeMap<String, RenderedFile>> = LazyLock::new(render_all);

/// `GET /docs`: the first page.
pub(crate) async fn docs_index(request: HeaderMap) -> Result<Response, ApiError> {
    docs_page(Path(INDEX.to_owned()), request).await
}

/// `GET /docs/{*path}`: a page, the style sheet or an image.
///
/// # Errors
/// `NotFound` if there is no such page.
pub(crate) async fn docs_page(Path(path): Path<String>, request: HeaderMap) -> Result<Response, ApiError> {
    let wanted = if path.is_empty() || path.ends_with('/') { format!("{path}{INDEX}") } else { html_path(&path) };
    let content = CONTENTS.get(&wanted).ok_or_else(|| ApiError::NotFound {
        kind: "documentation page",
        name: path.chars().take(80).collect(),
        hint: "see the list of pages at /docs".to_owned(),
    })?;
    let RenderedFile { media_type, fingerprint, text } = content;
    let mut response = cacheable_response(&request, StaticContent { media_type, fingerprint, text });
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY_VALUE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// Returns the served path of a file: that of a Markdown page ends in `.html`.
fn html_path(path: &str) -> String {
    path.strip_suffix(".md").map_or_else(|| path.to_owned(), |stem| format!("{stem}.html"))
}

/// Returns every page, rendered, with the images and the style sheet.
fn render_all() -> BTreeMap<String, RenderedFile> {
    let mut files = Vec::new();
    collect_files(&SOURCES, &mut files);
    let summary = files.iter().find(|(path, _)| path == SUMMARY).map_or("", |(_, text)| text);
    let navigation = render_markdown("", summary).body;
    let mut contents = BTreeMap::from([content("style.css", "text/css; charset=utf-8", STYLE.to_owned())]);
    for (path, text) in &files {
        if path.ends_with(".svg") {
            contents.extend([content(path, "image/svg+xml", (*text).to_owned())]);
        } else if path.ends_with(".md") && path != SUMMARY {
            let page = render_markdown(path, text);
            let html = PAGE_TEMPLATE
                .replace("{title}", &page.title)
                .replace("{navigation}", &navigation)
                .replace("{body}", &page.body);
            contents.extend([content(&html_path(path), "text/html; charset=utf-8", html)]);
        }
    }
    contents
}

fn content(path: &str, media_type: &'static str, text: String) -> (String, RenderedFile) {
    let mut hasher = Sha256Hasher::new();
    hasher.update_field(text.as_bytes());
    (path.to_owned(), RenderedFile { media_type, fingerprint: hasher.finish().hex()[..16].to_owned(), text })
}

/// Appends the path and text of every text file below `directory`.
fn collect_files<'a>(directory: &'a Dir<'a>, files: &mut Vec<(String, &'a str)>) {
    for file in directory.files() {
        if let (Some(path), Some(text)) = (file.path().to_str(), file.contents_utf8()) {
            files.push((path.to_owned(), text));
        }
    }
    directory.dirs().for_each(|directory| collect_files(directory, files));
}

/// A rendered page.
struct RenderedPage {
    /// The text of its first heading.
    title: String,
    body: String,
}

/// Renders the page at `path`. Headings get anchors, and links between pages become paths below `/docs`.
fn render_markdown(path: &str, text: &str) -> RenderedPage {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut title = String::new();
    let mut heading: Option<usize> = None;
    for at in 0..events.len() {
        match &mut events[at] {
            Event::Start(Tag::Heading { .. }) => heading = Some(at),
            Event::End(TagEnd::Heading(level)) => {
                let level = *level;
                let Some(start) = heading.take() else { continue };
                let words: String = events[start..at].iter().filter_map(event_text).collect();
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[start] {
                    *id = Some(CowStr::from(anchor(&words)));
                }
                if title.is_empty() && level == HeadingLevel::H1 {
                    title = words;
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                *dest_url = CowStr::from(served_link(path, dest_url));
            }
            _ => {}
        }
    }
    let mut body = String::with_capacity(text.len() * 2);
    html::push_html(&mut body, events.into_iter());
    RenderedPage { title, body }
}

fn event_text<'a>(event: &'a Event<'_>) -> Option<&'a str> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text),
        _ => None,
    }
}

/// Returns the anchor of a heading as code hosts make it: lower case, spaces become hyphens, punctuation is dropped.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    letters.map(|it| if it == ' ' { '-' } else { it.to_ascii_lowercase() }).collect()
}

/// Returns the link of the page at `page` to `link` as browsers need it. Links to other hosts and within the page stay.
fn served_link(page: &str, link: &str) -> String {
    if link.contains("://") || link.starts_with(['#', '/']) || link.starts_with("mailto:") {
        return link.to_owned();
    }
    let (target, fragment) = link.split_once('#').map_or((link, ""), |(target, fragment)| (target, fragment));
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = html_path(&parts.join("/"));
    if fragment.is_empty() { format!("/docs/{path}") } else { format!("/docs/{path}#{fragment}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_pages_become_served_paths() {
        for (page, link, expected) in [
            ("start/install.md", "first-model.md", "/docs/start/first-model.html"),
            ("start/install.md", "../operate/gpu.md#drivers", "/docs/operate/gpu.html#drivers"),
            ("README.md", "start/install.md", "/docs/start/install.html"),
            ("start/install.md", "../images/overview.svg", "/docs/images/overview.svg"),
            ("start/install.md", "#linux", "#linux"),
            ("start/install.md", "https://rustup.rs", "https://rustup.rs"),
        ] {
            assert_eq!(served_link(page, link), expected, "{link} in {page}");
        }
    }

    #[test]
    fn headings_have_the_anchors_of_code_hosts() {
        let page = render_markdown("a.md", "# Your `first` model\n\n## GPU, or none?\n");
        assert_eq!(page.title, "Your first model");
        assert!(page.body.contains("<h1 id=\"your-first-model\">"), "{}", page.body);
        assert!(page.body.contains("<h2 id=\"gpu-or-none\">"), "{}", page.body);
    }

    /// Every link leads to a page, an image or an anchor that exists, and the summary lists every page.
    #[test]
    fn every_link_of_the_documentation_resolves() {
        let mut files = Vec::new();
        collect_files(&SOURCES, &mut files);
        let mut listed = Vec::new();
        let mut checked = 0;
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
            for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
                let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else { continue };
                if dest_url.contains("://") {
                    continue;
                }
                let served = if dest_url.starts_with('#') {
                    format!("/docs/{}{dest_url}", html_path(path))
                } else {
                    served_link(path, &dest_url)
                };
                let (page, fragment) = served.split_once('#').unwrap_or((&served, ""));
                let page = page.strip_prefix("/docs/").unwrap_or_else(|| panic!("{path} links to {dest_url}"));
                let target =
                    CONTENTS.get(page).unwrap_or_else(|| panic!("{path} links to {dest_url}, which does not exist"));
                let has_anchor = fragment.is_empty() || target.text.contains(&format!(" id=\"{fragment}\""));
                assert!(has_anchor, "{path} links to {dest_url}, and that page has no such heading");
                checked += 1;
                if path == SUMMARY {
                    listed.push(page.to_owned());
                }
            }
        }
        assert!(checked > 10, "{checked} links were found");
        let pages = files.iter().filter(|(path, _)| path.ends_with(".md") && path != SUMMARY);
        let missing: Vec<_> = pages.map(|(path, _)| html_path(path)).filter(|path| !listed.contains(path)).collect();
        assert!(missing.is_empty(), "SUMMARY.md does not list {missing:?}");
    }

    /// `make docs`: writes every page below the directory that `DOCS_DIR` names, with links that work without a server.
    #[test]
    fn pages_are_rendered_into_a_directory() {
        let (_temporary, directory) = match std::env::var_os("DOCS_DIR") {
            Some(directory) => (None, std::path::PathBuf::from(directory)),
            None => {
                let temporary = tempfile::tempdir().unwrap();
                let directory = temporary.path().to_owned();
                (Some(temporary), directory)
            }
        };
        for (path, content) in CONTENTS.iter() {
            let to_root = "../".repeat(path.matches('/').count());
            let text = content.text.replace("=\"/docs/", &format!("=\"{to_root}"));
            let file = directory.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let first = std::fs::read_to_string(directory.join("start/install.html")).unwrap();
        assert!(first.contains("href=\"../start/first-model.html\"") && !first.contains("\"/docs/"), "{first}");
    }

    #[test]
    fn the_binary_contains_every_page() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(root).unwrap();
                    assert!(SOURCES.get_file(name).is_some(), "{} is not in this build", name.display());
                }
            }
        }
    }
}
