//! Attacks by files and by recorded data of jobs: memory, disk and the server's time stay within their limits.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say SKIP")]

use std::io::Write;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, copy_version, guest, memory_kib, unshare_command};
use serde_json::Value;

/// The limit on a server's memory growth during an import, in KiB, whatever the dataset is.
const GROWTH_KIB_MAX: u64 = 128 << 10;

fn push(server: &ServerProcess, file: &str, content: &[u8]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(file), content).unwrap();
    let pushed = server.saggar(&["data", "push", folder.path().to_str().unwrap(), "--name", "lines"]);
    (pushed.status.code(), String::from_utf8_lossy(&pushed.stderr).into_owned())
}

#[test]
fn ingesting_files_of_newlines_uses_bounded_memory() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let before = memory_kib(server.pid(), "VmHWM");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let lines = vec![b'\n'; 1 << 20];
    (0..200).for_each(|_| encoder.write_all(&lines).unwrap());
    let (code, said) = push(&server, "x.txt.gz", &encoder.finish().unwrap());
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("x.txt.gz") && said.contains("1000 times") && said.contains("uncompressed"), "{said}");
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
    // Uncompressed, it is a valid dataset, and memory holds only buffers of it.
    let (code, said) = push(&server, "x.txt", &lines.repeat(64));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(server.get("/api/v1/datasets")["datasets"][0]["items"], 64 << 20);
    let growth = memory_kib(server.pid(), "VmHWM").saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more than {before} KiB");
}

#[test]
fn ingesting_an_unterminated_quoted_field_uses_bounded_memory() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let before = memory_kib(server.pid(), "VmHWM");
    let folder = tempfile::tempdir().unwrap();
    let json = r#"{"format":"csv","file":"x.csv","fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#;
    std::fs::write(folder.path().join("dataset.json"), json).unwrap();
    std::fs::write(folder.path().join("x.csv"), [b"1\n\"".as_slice(), &vec![b'\n'; 200 << 20]].concat()).unwrap();
    let pushed = server.saggar(&["data", "push", folder.path().to_str().unwrap(), "--name", "quoted"]);
    let said = String::from_utf8_lossy(&pushed.stderr);
    assert!(!pushed.status.success() && said.contains("the record after line 1"), "{said}");
    let growth = memory_kib(server.pid(), "VmHWM").saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more than {before} KiB");
}

#[test]
fn metric_points_of_a_job_are_limited_and_removed_with_it() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--storage-quota", "60MiB"]);
    let job = SteadyJob::with_steps(1_200)
        .with_parameter("series", 240)
        .with_field("checkpoint_every", serde_json::json!({ "steps": 10_000 }));
    let done = server.wait_for_job(&job.submit(&server));
    assert_eq!(done["state"], "SUCCEEDED", "{done}");
    let name = done["name"].as_str().unwrap();
    let records = || {
        let of = |file: &str| std::fs::metadata(home.path().join(file)).map_or(0, |data| data.len());
        of("saggar.db") + of("saggar.db-wal")
    };
    let full = records();
    assert!(full < 60 << 20, "{full} bytes");
    let events = server.get(&format!("/api/v1/jobs/{name}/events")).to_string();
    assert!(events.contains("SERIES_THINNED"), "{events}");
    assert_eq!(server.request("DELETE", &format!("/api/v1/jobs/{name}"), HttpPayload::Nothing).status, 200);
    let left = records();
    assert!(left < full / 2 && left < 4 << 20, "{left} of {full} bytes are left");
    // Other jobs still have space.
    assert_eq!(server.wait_for_job(&SteadyJob::with_steps(5).submit(&server))["state"], "SUCCEEDED");
}

#[test]
fn named_pipes_in_the_models_directory_block_neither_scans_nor_shutdown() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(5).with_parameter("model", "steady").submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let models = home.path().join("models");
    let versions = |server: &ServerProcess| {
        let model = server.request("GET", "/api/v1/models/steady", HttpPayload::Nothing).json();
        model["versions"].as_array().map_or(0, Vec::len)
    };
    server.wait_for("the first version", |server| (versions(server) == 1).then_some(()));
    std::fs::create_dir_all(models.join("pipes/1")).unwrap();
    std::fs::write(models.join("dropped.onnx"), "no model").unwrap();
    for pipe in ["pipes/1/manifest.json", "pipes/serving.json", "pipes/plan.json", "dropped.onnx.json", "pipe.onnx"] {
        assert!(Command::new("mkfifo").arg(models.join(pipe)).status().unwrap().success());
    }
    copy_version(&models.join("steady"), 1, 2);
    server.wait_for("the second version", |server| (versions(server) == 2).then_some(()));
    let pid = server.pid();
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    // It is a zombie until it is waited for.
    server.wait_for("the end of the server", |_| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z')).then_some(())
    });
}

#[test]
fn removed_directories_and_a_full_disk_are_not_internal_server_errors() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    for directory in ["uploads", "datasets"] {
        std::fs::remove_dir_all(home.path().join(directory)).unwrap();
    }
    assert_eq!(push(&server, "x.txt", b"a\nb\n").0, Some(0));

    let (home, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut command) = unshare_command() else { return };
    let script =
        "mount -t tmpfs -o size=24m tmpfs \"$0\"; exec \"$1\" serve --addr 127.0.0.1:0 --device cpu --home \"$0\"";
    command.arg(script).args([home.path(), &binary()]);
    let server = ServerProcess::from_command(command, logs.path());
    // The disk is mounted only in the server's mount namespace.
    let fill = format!("/proc/{}/root{}/fill", server.pid(), home.path().display());
    let Ok(mut file) = std::fs::File::create(&fill) else { return println!("SKIP: {fill} cannot be written") };
    while file.write_all(&[0; 4096]).is_ok() {}
    let wasm = std::fs::read(guest("steady")).unwrap();
    let upload = || server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &wasm));
    let refused = upload();
    let body: Value = refused.json();
    assert_eq!((refused.status, &body["code"]), (507, &Value::from("disk_full")), "{}", refused.text);
    assert!(body["hint"].as_str().unwrap().contains("saggar gc"), "{body}");
    // Its space is freed when the last file handle is closed.
    drop(file);
    std::fs::remove_file(&fill).unwrap();
    let again = upload();
    assert_eq!(again.status, 200, "{}", again.text);
}
