//! Tests with servers that behave and that do not.

use std::io::BufRead;
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};

use super::*;

/// Starts a server that answers every request with what `answer` writes, given the path. Returns its address.
fn server(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            // The head ends with an empty line.
            let _ = lines.find(String::is_empty);
            answer(first.split(' ').nth(1).unwrap_or_default(), &mut stream);
        }
    });
    address
}

fn send(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes());
    let _ = stream.write_all(body);
}

fn fetcher(allowed: &[&str]) -> RemoteFetcher {
    let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
    RemoteFetcher::new(FetchPolicy { allowed, allow_private: false })
}

/// Fetches into a new directory. Returns the content.
fn fetch(fetcher: &RemoteFetcher, url: &str, sha256: &Digest, bytes_max: u64) -> Result<Vec<u8>, FetchError> {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("fetch");
    let content = fetcher.fetch(&FetchRequest { url, sha256, bytes_max }, &dir).map(|file| {
        let content = fs::read(file.path()).unwrap();
        assert_eq!(content.len() as u64, file.bytes());
        content
    });
    let left = fs::read_dir(&dir).into_iter().flatten().count();
    assert_eq!(left, 0, "nothing stays of a fetch: {content:?}");
    content
}

#[test]
fn a_file_is_fetched_if_its_digest_and_address_are_right() {
    let address = server(|_, stream| send(stream, "200 OK\r\ncontent-length: 5", b"hello"));
    let digest = Digest::of(b"hello");
    let allowed = fetcher(&[&address]);
    assert_eq!(fetch(&allowed, &format!("{address}/a"), &digest, 5).unwrap(), b"hello");
    let error = fetch(&allowed, &format!("{address}/a?key=s3cret"), &Digest::of(b"other"), 5).unwrap_err();
    let says = error.to_string();
    assert!(says.contains(&digest.hex()) && says.contains(&Digest::of(b"other").hex()), "both digests: {says}");
    assert!(!says.contains("s3cret"), "{says}");
    assert!(matches!(fetch(&allowed, &format!("{address}/a"), &digest, 4), Err(FetchError::TooLarge { .. })));
    let disabled = fetch(&fetcher(&[]), &format!("{address}/a"), &digest, 5).unwrap_err();
    assert!(matches!(disabled, FetchError::Disabled { .. }) && disabled.to_string().contains("--fetch-from"));
    let other = fetch(&fetcher(&["https://example.com"]), &format!("{address}/a"), &digest, 5).unwrap_err();
    assert!(matches!(other, FetchError::NotAllowed { .. }) && other.to_string().contains("https://example.com"));
    for url in ["file:///etc/passwd", "not a url", ""] {
        assert!(matches!(fetch(&allowed, url, &digest, 5), Err(FetchError::BadUrl { .. })), "{url}");
    }
}

#[test]
fn a_body_without_end_is_cut_at_the_limit() {
    let address = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while stream.write_all(b"4\r\nmore\r\n").is_ok() {}
    });
    let error = fetch(&fetcher(&[&address]), &format!("{address}/a"), &Digest::of(b""), 100_000).unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { bytes_max: 100_000, .. }), "{error}");
}

#[test]
fn fetches_that_run_at_once_are_limited() {
    let (sender, stop) = std::sync::mpsc::channel::<()>();
    let stop = std::sync::Mutex::new(stop);
    let (arrivals, arrived) = std::sync::mpsc::channel();
    let address = server(move |_, stream| {
        let _ = arrivals.send(());
        // Answers when the test ends.
        let _ = stop.lock().unwrap().recv();
        send(stream, "200 OK", b"");
    });
    let fetcher = fetcher(&[&address]);
    let counter = Arc::clone(&fetcher.running);
    let guards: Vec<_> = (0..FETCHES_MAX - 1).map(|_| RunningFetch::start(&counter).unwrap()).collect();
    let (last, url) = (fetcher.clone(), format!("{address}/a"));
    let running = std::thread::spawn(move || fetch(&last, &url, &Digest::of(b""), 9));
    arrived.recv().unwrap();
    let refused = fetch(&fetcher, &format!("{address}/b"), &Digest::of(b""), 9).unwrap_err();
    assert!(matches!(refused, FetchError::Busy), "{refused}");
    drop(sender);
    assert_eq!(running.join().unwrap().unwrap(), b"");
    drop(guards);
    assert_eq!(counter.load(Ordering::Acquire), 0);
}

#[test]
fn a_body_that_breaks_off_is_an_error() {
    let address = server(|_, stream| send(stream, "200 OK\r\ncontent-length: 50", b"hello"));
    let error = fetch(&fetcher(&[&address]), &format!("{address}/a"), &Digest::of(b"hello"), 100).unwrap_err();
    assert!(matches!(error, FetchError::Connection { .. } | FetchError::WrongDigest { .. }), "{error}");
    let missing = server(|_, stream| send(stream, "404 Not Found\r\ncontent-length: 0", b""));
    let error = fetch(&fetcher(&[&missing]), &format!("{missing}/a"), &Digest::of(b""), 100).unwrap_err();
    assert!(matches!(error, FetchError::Status { status: 404, .. }), "{error}");
}

#[test]
fn redirects_obey_the_same_rule() {
    let (digest, target) = (Digest::of(b"hello"), server(|_, stream| send(stream, "200 OK", b"hello")));
    let elsewhere = target.clone();
    let address = server(move |path, stream| {
        let location = match path {
            "/near" => "/data",
            "/far" => &elsewhere,
            "/metadata" => "http://169.254.169.254/latest/meta-data",
            "/file" => "file:///etc/passwd",
            "/loop" => "/loop",
            _ => return send(stream, "200 OK", b"hello"),
        };
        send(stream, &format!("302 Found\r\ncontent-length: 0\r\nlocation: {location}"), b"");
    });
    let one = fetcher(&[&address]);
    assert_eq!(fetch(&one, &format!("{address}/near"), &digest, 9).unwrap(), b"hello");
    let refused = |path: &str| fetch(&one, &format!("{address}{path}"), &digest, 9).unwrap_err();
    assert!(matches!(refused("/far"), FetchError::NotAllowed { .. }));
    assert!(matches!(refused("/metadata"), FetchError::NotAllowed { .. }));
    assert!(matches!(refused("/file"), FetchError::BadUrl { .. } | FetchError::NotAllowed { .. }));
    assert!(matches!(refused("/loop"), FetchError::Redirects { .. }));
    let both = fetcher(&[&address, &target]);
    assert_eq!(fetch(&both, &format!("{address}/far"), &digest, 9).unwrap(), b"hello");
}

#[test]
fn a_name_of_a_private_address_is_refused_unless_allowed() {
    // The resolver takes `127.1` for an address of this machine, although it is not written as one.
    let address = server(|_, stream| send(stream, "200 OK", b"hello"));
    let port = address.rsplit(':').next().unwrap();
    let (digest, url) = (Digest::of(b"hello"), format!("http://127.1:{port}/a"));
    let origin = format!("http://127.1:{port}");
    let error = fetch(&fetcher(&[&origin]), &url, &digest, 9).unwrap_err();
    assert!(matches!(error, FetchError::PrivateAddress { .. }), "{error}");
    let policy = FetchPolicy { allowed: vec![origin.parse().unwrap()], allow_private: true };
    assert_eq!(fetch(&RemoteFetcher::new(policy), &url, &digest, 9).unwrap(), b"hello");
    let named = format!("http://localhost:{port}");
    assert_eq!(fetch(&fetcher(&[&named]), &format!("{named}/a"), &digest, 9).unwrap(), b"hello");
}
