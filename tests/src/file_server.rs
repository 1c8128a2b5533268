//! A server of one file, for tests of what the program fetches.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts a server of one file, which redirects `/elsewhere` to an address of another machine and sends a body without
/// an end at `/endless`. Returns its address and the number of requests so far.
pub fn file_server(content: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("the address of a listener"));
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::Relaxed);
            let Ok(reader) = stream.try_clone() else { return };
            let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let _ = lines.find(String::is_empty);
            let _ = match first.split(' ').nth(1).unwrap_or_default() {
                "/elsewhere" => stream.write_all(
                    b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n",
                ),
                "/endless" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                    let piece = [b"100000\r\n".as_slice(), &vec![0; 1 << 20], b"\r\n"].concat();
                    while stream.write_all(&piece).is_ok() {}
                    Ok(())
                }
                _ => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", content.len());
                    stream.write_all(&[head.as_bytes(), &content].concat())
                }
            };
        }
    });
    (address, requests)
}
