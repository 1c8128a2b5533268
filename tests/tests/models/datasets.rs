//! Datasets end to end: mounts, formats, fetching, exporting, removing.
//!
//! A mount is read-only because a plugin has no file system, and the interface `datasets` has no function that writes.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;

use flate2::Compression;
use flate2::write::GzEncoder;
use saggar_store::{ColumnarDataset, Digest, JobFiles, LocalJobFiles, StateDir};
use saggar_tests::{HttpPayload, ServerProcess, binary, lenet, root, worker_processes};
use serde_json::{Value, json};
use tempfile::TempDir;

fn with_digits(home: &Path) -> ServerProcess {
    let server = ServerProcess::start_with(home, &["--jobs", "2"]);
    server.push_digits();
    server
}

/// Submits a training, and returns its name.
fn submit_training(server: &ServerProcess, data: &[&str], epochs: u32) -> String {
    let (plugin, epochs) = (lenet(), format!("epochs={epochs}"));
    let mut run = vec!["run", plugin.to_str().unwrap(), "--device", "cpu"];
    data.iter().for_each(|data| run.extend(["--data", *data]));
    run.extend(["--", epochs.as_str()]);
    server.saggar_ok(&run).trim().to_owned()
}

/// Returns every file below a folder, with its digest.
fn file_digests(folder: &Path) -> BTreeMap<PathBuf, Digest> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.clone(), Digest::of_file(&path).unwrap().0);
            }
        }
    }
    found
}

/// Returns a folder of text files.
fn folder_with_texts(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn push(server: &ServerProcess, folder: &Path, name: &str) -> String {
    server.saggar_ok(&["data", "push", folder.to_str().unwrap(), "--name", name]).trim().to_owned()
}

fn check_refused(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn a_dataset_mount_is_read_only() {
    let wit = std::fs::read_to_string(root().join("wit/datasets.wit")).unwrap();
    let functions: Vec<&str> = wit
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .filter(|(_, rest)| rest.contains("func("))
        .map(|(name, _)| name)
        .collect();
    let reading =
        ["open", "from-columns", "fields", "splits", "len", "batches", "next", "run", "full-batches", "position"];
    assert_eq!(functions, reading, "one that writes to what is mounted needs another test than this");

    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let before = file_digests(&home.path().join("datasets"));
    let job = submit_training(&server, &["digits/1:/data"], 1);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    assert_eq!(file_digests(&home.path().join("datasets")), before, "a training changes nothing of what it reads");
}

#[test]
fn a_mount_without_a_version_pins_the_newest_at_submission() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    assert_eq!(push(&server, folder_with_texts(&[("a.txt", "one\n")]).path(), "digits"), "digits/2");
    let job = submit_training(&server, &["digits:/a", "digits/1:/data"], 1);
    assert_eq!(push(&server, folder_with_texts(&[("a.txt", "two\n")]).path(), "digits"), "digits/3");
    let job = server.wait_for_job(&job);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    let pinned = json!([
        { "dataset": "digits", "version": 2, "mount": "/a" },
        { "dataset": "digits", "version": 1, "mount": "/data" },
    ]);
    assert_eq!(job["spec"]["data"], pinned);
}

#[test]
fn two_jobs_share_one_stored_copy_of_a_dataset() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let stored = || file_digests(&home.path().join("datasets"));
    let before = stored();
    let jobs = [submit_training(&server, &["digits"], 100_000), submit_training(&server, &["digits"], 100_000)];
    let column = home.path().join("datasets/digits/1/image.bin");
    // Both jobs read the one file through maps: there is no copy on the disk or in a process.
    server.wait_for("two maps of the column", |server| {
        let maps = |pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let reading =
            worker_processes(server.pid()).into_iter().filter(|pid| maps(*pid).contains(column.to_str().unwrap()));
        (reading.count() == 2).then_some(())
    });
    assert_eq!(stored(), before);
    let cache_dir = home.path().join("cache/datasets");
    assert!(!cache_dir.exists() || file_digests(&cache_dir).is_empty(), "a copy in the cache");
    let used = server.get("/api/v1/datasets");
    assert_eq!(used["datasets"][0]["used_by"].as_array().unwrap().len(), 2, "{used}");
    // A dataset that jobs read cannot be removed.
    let text = check_refused(&server.saggar(&["data", "rm", "digits/1", "--yes"]), 5);
    assert!(jobs.iter().all(|job| text.contains(job.as_str())), "{text}");
    for job in &jobs {
        server.saggar_ok(&["stop", job]);
        server.wait_for_job(job);
    }
    assert_eq!(server.saggar_ok(&["data", "rm", "digits/1", "--yes"]).trim(), "digits/1");
}

#[test]
fn eight_mounts_work_and_a_duplicate_mount_point_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let mounts: Vec<String> =
        ["data", "b", "c", "d", "e", "f", "g", "h"].iter().map(|mount| format!("digits:/{mount}")).collect();
    let mounts: Vec<&str> = mounts.iter().map(String::as_str).collect();
    let job = server.wait_for_job(&submit_training(&server, &mounts, 1));
    assert_eq!((&job["state"], job["spec"]["data"].as_array().unwrap().len()), (&json!("SUCCEEDED"), 8));
    let plugin = lenet();
    let twice = ["run", plugin.to_str().unwrap(), "--data", "digits:/data", "--data", "digits/1:/data"];
    let text = check_refused(&server.saggar(&twice), 7);
    assert!(text.contains("two datasets are to be mounted at /data"), "{text}");
    assert_eq!(server.get("/api/v1/jobs")["jobs"].as_array().unwrap().len(), 1, "it was queued");
}

#[test]
fn a_job_output_is_pushed_as_a_dataset() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let job = server.wait_for_job(&submit_training(&server, &["digits"], 1));
    let (id, name) = (job["id"].as_str().unwrap(), job["name"].as_str().unwrap());
    let state = StateDir::open(home.path()).unwrap();
    // Written the way the host writes a plugin's output.
    LocalJobFiles::new(home.path()).write_output(id, "predictions/test.txt", b"seven\nnine\n").unwrap();
    let part = format!("{name}/predictions");
    assert_eq!(server.saggar_ok(&["data", "add", &part, "--as", "answers"]).trim(), "answers/1");
    assert_eq!(server.saggar_ok(&["data", "add", &part, "--as", "answers"]).trim(), "answers/1");
    let info = server.get("/api/v1/datasets")["datasets"][0].clone();
    assert_eq!((&info["name"], &info["items"]), (&json!("answers"), &json!(2)));
    let mounted = ColumnarDataset::from_output(&state, id, Some("predictions")).unwrap();
    assert_eq!(json!(mounted.digest()), info["digest"]);
    assert!(check_refused(&server.saggar(&["data", "add", &format!("{name}/none"), "--as", "x"]), 3).contains("none"));
    check_refused(&server.saggar(&["data", "add", "nothing-1", "--as", "x"]), 3);
    let text = check_refused(&server.saggar(&["data", "add", &format!("{name}/../.."), "--as", "x"]), 7);
    assert!(text.contains("cannot be a path"), "{text}");
}

#[test]
fn an_exported_dataset_pushed_again_is_the_same_version() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("fetched");
    let dir = dir.to_str().unwrap();
    assert_eq!(server.saggar_ok(&["data", "export", "digits", "-o", dir]).trim(), dir);
    let names: Vec<_> = file_digests(Path::new(dir)).keys().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["dataset.json", "image.npy", "label.npy"]);
    assert_eq!(push(&server, Path::new(dir), "digits"), "digits/1", "the same content is the same version");
    let text = check_refused(&server.saggar(&["data", "export", "digits", "-o", dir]), 5);
    assert!(text.contains("is there already"), "{text}");
    check_refused(&server.saggar(&["data", "export", "digits/2", "-o", dir]), 3);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing half-fetched");
    // A trailing slash does not change the directory, and a path without a name is refused at once.
    let slash = format!("{dir}-too/");
    server.saggar_ok(&["data", "export", "digits", "-o", &slash]);
    assert!(Path::new(&slash).join("dataset.json").is_file());
    check_refused(&server.saggar(&["data", "export", "digits", "-o", &format!("{dir}/..")]), 7);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "nothing half-fetched");
}

#[test]
fn numbers_of_removed_dataset_versions_are_not_reused() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    for (text, name) in [("one\n", "d/1"), ("two\n", "d/2")] {
        assert_eq!(push(&server, folder_with_texts(&[("a.txt", text)]).path(), "d"), name);
    }
    let text = check_refused(&server.saggar(&["data", "rm", "d"]), 2);
    assert!(text.contains("d/1, d/2") && text.contains("--yes"), "{text}");
    assert_eq!(server.saggar_ok(&["data", "rm", "d", "--yes"]), "d/1\nd/2\n");
    assert_eq!(server.get("/api/v1/datasets"), json!({ "datasets": [] }));
    check_refused(&server.saggar(&["data", "rm", "d", "-y"]), 3);
    assert_eq!(push(&server, folder_with_texts(&[("a.txt", "two\n")]).path(), "d"), "d/3");
}

#[test]
fn symbolic_links_are_refused_and_ignored_files_are_not_uploaded() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let folder = folder_with_texts(&[("a.txt", "one\n"), ("b.txt", "two\n"), (".saggarignore", "b.*\n")]);
    let link = folder.path().join("c.txt");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    let arguments = ["data", "push", folder.path().to_str().unwrap(), "--name", "d"];
    let text = check_refused(&server.saggar(&arguments), 7);
    assert!(text.contains("c.txt is a symbolic link"), "{text}");
    assert_eq!(server.get("/api/v1/datasets"), json!({ "datasets": [] }));
    std::fs::remove_file(link).unwrap();
    server.saggar_ok(&arguments);
    assert_eq!(server.get("/api/v1/datasets")["datasets"][0]["splits"], json!({ "train": 1 }));
}

fn tar_gz_archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::none());
    for (name, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_cksum();
        gz.write_all(header.as_bytes()).unwrap();
        gz.write_all(content).unwrap();
        gz.write_all(&vec![0; content.len().next_multiple_of(512) - content.len()]).unwrap();
    }
    gz.write_all(&[0; 1024]).unwrap();
    gz.finish().unwrap()
}

/// Runs `data pull` with a separate cache.
fn pull(server: &ServerProcess, cache: &Path, url: &str, sha256: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["data", "fetch", url, "--sha256", sha256, "--name", "pulled"]);
    command.env("SAGGAR_HOST", server.url()).env("XDG_CACHE_HOME", cache).output().unwrap()
}

/// Serves a file in pieces: every connection is closed after `bytes_each` bytes. Sends the requested ranges over the
/// channel.
fn serve_interrupted(file: Vec<u8>, bytes_each: usize) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/deep/d.tar.gz", listener.local_addr().unwrap());
    let (tell, asked) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut range = String::new();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                assert!(!line.to_lowercase().starts_with("authorization"), "a key was sent to a stranger");
                if let Some(asked) = line.to_lowercase().strip_prefix("range: ") {
                    range = asked.trim().to_owned();
                }
            }
            let begin: usize = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
            let status = if range.is_empty() { "200 OK".to_owned() } else { "206 Partial Content".to_owned() };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {begin}-{}/{}\r\nConnection: close\r\n\r\n",
                file.len() - begin,
                file.len() - 1,
                file.len()
            );
            let end = file.len().min(begin + bytes_each);
            // Sent before the response, because a client that has the response can read the channel at once.
            if tell.send(range).is_err() {
                return;
            }
            let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&file[begin..end]));
        }
    });
    (url, asked)
}

#[test]
fn an_interrupted_download_resumes() {
    let (home, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start(home.path());
    let lines = "a line\n".repeat(2000);
    let file = tar_gz_archive(&[("d/train.txt", lines.as_bytes()), ("d/test.txt", b"one\n")]);
    let sha256 = Digest::of(&file).hex();
    let (url, asked) = serve_interrupted(file.clone(), 6000);
    let output = pull(&server, cache.path(), &url, &sha256);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "pulled/1");
    assert_eq!(server.get("/api/v1/datasets")["datasets"][0]["items"], 2001);
    let ranges: Vec<String> = asked.try_iter().collect();
    assert_eq!(ranges[..3], ["", "bytes=6000-", "bytes=12000-"]);
    let left = || std::fs::read_dir(cache.path().join("saggar/pulls")).unwrap().count();
    assert_eq!(left(), 0, "what was pushed needs no other place");

    let other = Digest::of(b"another").hex();
    let text = check_refused(&pull(&server, cache.path(), &url, &other), 7);
    assert!(text.contains(&sha256) && text.contains(&other), "{text}");
    assert_eq!(left(), 0);
}

#[test]
fn archives_with_paths_outside_their_folder_are_refused() {
    let (home, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start(home.path());
    let place = tempfile::tempdir().unwrap();
    for (name, bytes, words) in [
        ("up.tar.gz", tar_gz_archive(&[("../up.txt", b"x\n")]), "up.tar.gz/../up.txt"),
        ("root.tar.gz", tar_gz_archive(&[("/tmp/root.txt", b"x\n")]), "cannot be a path"),
        ("half.tar.gz", tar_gz_archive(&[("a.txt", &[b'x'; 4000])])[..2000].to_vec(), "ends early"),
        ("no.zip", b"no archive".to_vec(), "not a ZIP archive"),
    ] {
        let path = place.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let url = format!("file://{}", path.display());
        let text = check_refused(&pull(&server, cache.path(), &url, &Digest::of(&bytes).hex()), 7);
        assert!(text.contains(words), "{name}: {text}");
        assert!(path.exists(), "a file of the user's is not ours to remove");
    }
    assert_eq!(server.get("/api/v1/datasets"), json!({ "datasets": [] }));
    assert!(file_digests(cache.path()).is_empty());
    let url = format!("file://{}/none.zip", place.path().display());
    check_refused(&pull(&server, cache.path(), &url, &Digest::of(b"").hex()), 3);
    check_refused(&pull(&server, cache.path(), "ftp://a/b.zip", &Digest::of(b"").hex()), 7);
    check_refused(&pull(&server, cache.path(), &url, "abc"), 7);
}

#[test]
fn a_feather_file_and_a_saved_dataset_of_hugging_face_are_pushed() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/store/src/dataset/tests/arrow_files");
    // What `frame.to_feather` of pandas writes, with two columns that have nulls.
    let file = files.join("pandas.feather");
    let options = ["data", "push", file.to_str().unwrap(), "--split", "0.2", "--missing", "drop"];
    server.saggar_ok(&options);
    let dataset = |name: &str| {
        let listed = server.get("/api/v1/datasets");
        listed["datasets"].as_array().unwrap().iter().find(|dataset| dataset["name"] == name).unwrap().clone()
    };
    let version = dataset("pandas");
    assert_eq!(version["notes"], json!(["1400 of 3000 rows were dropped: values are missing (first in row 1)"]));
    assert_eq!(version["splits"], json!({ "train": 1280, "test": 320 }));
    assert_eq!(version["fields"][0]["classes"], json!(["dog", "cat", "owl"]), "{version}");
    // What `save_to_disk` of the library `datasets` writes: streams, and files about them.
    let folder = folder_with_texts(&[("dataset_info.json", "{}"), ("state.json", "{}")]);
    std::fs::copy(files.join("images.arrow"), folder.path().join("data-00000-of-00001.arrow")).unwrap();
    push(&server, folder.path(), "pets");
    let version = dataset("pets");
    assert_eq!((&version["items"], &version["fields"][1]["classes"]), (&json!(3), &json!(["cat", "dog"])), "{version}");
}

#[test]
fn an_invalid_file_is_reported_with_its_location() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        ("x.npy", b"\x93NUMPY\x01\x00\xff\xff{", "x.npy: ends at byte 11"),
        ("x.npz", b"PK", "x.npz: not a ZIP archive"),
        ("x.safetensors", &[0; 4], "x.safetensors: it has 4 bytes"),
        ("x.parquet", b"PAR1", "x.parquet: it has 4 bytes, and a Parquet file has 12"),
        ("x.feather", b"ARROW1\0\0", "x.feather: it has 8 bytes, and an Arrow file has 18"),
    ];
    for (name, bytes, words) in cases {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = server.saggar(&["data", "push", folder.path().to_str().unwrap(), "--name", "bad"]);
        let text = check_refused(&output, 7);
        assert!(text.contains(words), "{name}: {text}");
        std::fs::remove_file(path).unwrap();
    }
    let answer = server.request("POST", "/api/v1/datasets", HttpPayload::Json(&json!({ "name": "../x", "files": [] })));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &Value::from("bad_name")));
}
