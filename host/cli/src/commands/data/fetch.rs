//! `saggar data fetch`: downloads a file with a known digest, unpacks it and pushes its content.
//!
//! The file is kept under its digest until it is pushed, so that an interrupted download resumes if the server supports
//! range requests (RFC 9110, section 14). The download does not involve the server that stores datasets, and no API key
//! is sent to the download's host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use saggar_store::archive::unpack_download;
use saggar_store::digest::Digest;
use saggar_store::limits::UPLOAD_BYTES_MAX;
use ureq::http::StatusCode;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use ureq::{Agent, Body};

use super::push;
use crate::args::DataFetchArgs;
use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::progress::ProgressDisplay;

/// Maximum number of attempts without progress before a download fails.
const DOWNLOAD_TRIES_MAX: u32 = 5;

pub(super) fn fetch(args: &DataFetchArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let refuse = |_| CliError::invalid(format!("--sha256 {}: expected 64 hexadecimal digits", args.sha256));
    let expected: Digest = args.sha256.to_ascii_lowercase().parse().map_err(refuse)?;
    let file_name = file_name(&args.url)?;
    let place = DownloadFile::create_in_cache(&expected)?;
    let file = match args.url.strip_prefix("file://") {
        Some(path) => PathBuf::from(path),
        None => {
            place.download(&args.url, output)?;
            place.part.clone()
        }
    };
    let (found, _) = Digest::of_file(&file)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", file.display())))?;
    if found != expected {
        let _ = fs::remove_file(&place.part);
        let message = format!("{}: SHA-256 {found}, expected {expected}", args.url);
        return Err(CliError::invalid(message).with_hint("the file has changed, or the digest belongs to another file"));
    }
    let folder = place.unpack(&file, &file_name)?;
    push::push_folder(&folder.content, &args.name, client, output)?;
    let _ = fs::remove_file(&place.part);
    Ok(())
}

/// Returns the last name in a URL, without its query.
fn file_name(url: &str) -> Result<String, CliError> {
    let known = ["https://", "http://", "file://"];
    let Some(rest) = known.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        let message = format!("{url}: the address begins with none of {}", known.join(", "));
        return Err(CliError::invalid(message).with_hint("for files of this machine there is `saggar data push DIR`"));
    };
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit_once('/').map_or("", |(_, name)| name);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+@ ".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(CliError::invalid(format!("{url}: it ends in no plain name of a file")));
    }
    Ok(name.to_owned())
}

/// A file that is kept until it is pushed.
struct DownloadFile {
    part: PathBuf,
}

impl DownloadFile {
    /// Creates the file in the user's cache, named by its digest.
    fn create_in_cache(digest: &Digest) -> Result<DownloadFile, CliError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let cache = cache.ok_or_else(|| {
            CliError::invalid("neither HOME nor XDG_CACHE_HOME is set, so there is no place for the download")
        })?;
        let dir = cache.join("saggar/pulls");
        fs::create_dir_all(&dir).map_err(|error| write_error(&dir, &error))?;
        Ok(DownloadFile { part: dir.join(format!("{digest}.part")) })
    }

    /// Downloads the file, or its missing part.
    fn download(&self, url: &str, output: CliOutput) -> Result<(), CliError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .user_agent(concat!("saggar/", env!("CARGO_PKG_VERSION")));
        let agent = Agent::new_with_config(config.build());
        let mut progress = ProgressDisplay::for_bytes("fetching", 0, output);
        let mut broken = 0;
        loop {
            let have = fs::metadata(&self.part).map_or(0, |data| data.len());
            match self.fetch_range(&agent, url, have, &mut progress)? {
                None => return Ok(()),
                Some(error) => {
                    // Only attempts without progress count, because a slow connection can break often.
                    let now = fs::metadata(&self.part).map_or(0, |data| data.len());
                    broken = if now > have { 1 } else { broken + 1 };
                    if broken >= DOWNLOAD_TRIES_MAX {
                        return Err(CliError::new(exit::UNREACHABLE, "unreachable", format!("{url}: {error}"))
                            .with_hint("run it again to go on where it broke off"));
                    }
                    progress.print_note(&format!("{url}: {error}; going on at byte {now}"));
                }
            }
        }
    }

    /// Sends one request. Returns a connection error as `Ok(Some(error))`, because it can be retried.
    fn fetch_range(
        &self,
        agent: &Agent,
        url: &str,
        have: u64,
        progress: &mut ProgressDisplay,
    ) -> Result<Option<io::Error>, CliError> {
        let mut request = agent.get(url);
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let answer = match request.call() {
            Ok(answer) => answer,
            Err(error @ ureq::Error::BadUri(_)) => return Err(CliError::invalid(format!("{url}: {error}"))),
            Err(error) => return Ok(Some(io::Error::other(error.to_string()))),
        };
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let range = header(CONTENT_RANGE).map(str::to_owned);
        let length: u64 = header(CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or(0);
        let begin = match answer.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if range_begins_at(range.as_deref(), have) => have,
            // Either the file is complete or it is wrong, which the digest check decides.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => return Ok(None),
            status if status.is_server_error() => return Ok(Some(io::Error::other(format!("answers {status}")))),
            status => {
                return Err(CliError::new(exit::NOT_FOUND, "not_found", format!("{url}: the answer is {status}")));
            }
        };
        progress.set(begin, begin + length, "");
        self.append_body(answer.into_body(), begin, begin + length, progress)
    }

    /// Writes a body after the first `begin` bytes.
    fn append_body(
        &self,
        body: Body,
        begin: u64,
        total: u64,
        progress: &mut ProgressDisplay,
    ) -> Result<Option<io::Error>, CliError> {
        let failed = |error: io::Error| write_error(&self.part, &error);
        let mut file = open_for_append(&self.part, begin).map_err(failed)?;
        let (mut reader, mut done, mut piece) = (body.into_reader(), begin, vec![0; 1 << 18]);
        loop {
            let n = match reader.read(&mut piece) {
                Ok(0) if done < total => return Ok(Some(io::ErrorKind::UnexpectedEof.into())),
                Ok(0) => return Ok(None),
                Ok(n) => n,
                Err(error) => return Ok(Some(error)),
            };
            done += n as u64;
            if done > UPLOAD_BYTES_MAX {
                let _ = fs::remove_file(&self.part);
                return Err(CliError::invalid(format!("the file has more than {UPLOAD_BYTES_MAX} bytes")));
            }
            file.write_all(&piece[..n]).map_err(failed)?;
            progress.set(done, total, "");
        }
    }

    /// Unpacks the file into a folder, which is removed when the returned value is dropped.
    fn unpack(&self, file: &Path, name: &str) -> Result<UnpackedFolder, CliError> {
        let path = self.part.with_extension(format!("{}.files", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| write_error(&path, &error))?;
        let mut folder = UnpackedFolder { content: path.clone(), path };
        let unpacked = unpack_download(file, name, &folder.path, UPLOAD_BYTES_MAX);
        folder.content =
            unpacked.map_err(|error| CliError::invalid(error.to_string()).with_hint("nothing of it was pushed"))?;
        Ok(folder)
    }
}

/// Opens the file with its first `begin` bytes, to append after them.
fn open_for_append(path: &Path, begin: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
    file.set_len(begin)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(begin))?;
    Ok(file)
}

/// Returns whether a `Content-Range` such as `bytes 100-199/200` begins at `begin`.
fn range_begins_at(range: Option<&str>, begin: u64) -> bool {
    let first = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
    first == Some(begin)
}

fn write_error(path: &Path, error: &io::Error) -> CliError {
    CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
}

/// A folder that is removed on drop.
struct UnpackedFolder {
    path: PathBuf,
    /// The folder in it that is pushed.
    content: PathBuf,
}

impl Drop for UnpackedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_taken_from_urls() {
        for (url, name) in [
            ("https://a.b/c/d.tar.gz?download=1#x", "d.tar.gz"),
            ("http://127.0.0.1:1/x.npz", "x.npz"),
            ("file:///tmp/x y.zip", "x y.zip"),
        ] {
            assert_eq!(file_name(url).unwrap(), name);
        }
        for url in
            ["ftp://a/b", "https://a.b", "https://a.b/", "https://a.b/..", "https://a.b/.x", "x.npz", "http://a/b%2f"]
        {
            assert_eq!(file_name(url).unwrap_err().exit_code, exit::INVALID, "{url}");
        }
        assert!(range_begins_at(Some("bytes 100-199/200"), 100));
        assert!(!range_begins_at(Some("bytes 0-199/200"), 100) && !range_begins_at(None, 0));
    }
}
