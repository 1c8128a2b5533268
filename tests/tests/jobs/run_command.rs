//! `saggar run`: its options, its output, and the time of a submission.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use saggar_tests::{ServerProcess, SteadyJob, binary, guest};
use serde_json::{Value, json};

/// Writes a project with this queue and task to `place`, and starts a server that runs its jobs.
fn project(place: &Path) -> ServerProcess {
    let file = place.join("saggar.toml");
    let text = format!(
        "manifest = 1\n[project]\nname = \"steady\"\n[pool.one]\ndevice = \"cpu\"\nslots = 1\n\
         [queue.default]\npools = [\"one\"]\n[queue.night]\npools = [\"one\"]\n\
         [plugin.steady]\nsource = {:?}\n[task.train]\nplugin = \"steady\"\nargs = {{ steps = 3 }}\ndevice = \"cpu\"\n",
        guest("steady")
    );
    std::fs::write(&file, text).unwrap();
    ServerProcess::start_with(place, &["--config", file.to_str().unwrap()])
}

/// Returns the two output streams of a command in the project.
fn in_project(server: &ServerProcess, place: &Path, arguments: &[&str]) -> (String, String) {
    let output = server.command(arguments).current_dir(place).output().unwrap();
    let [out, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{arguments:?}: {errors}");
    (out, errors)
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_submission_returns_within_a_second() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let run = ["run", steady.to_str().unwrap(), "--device", "cpu", "--", "steps=3"];
    let submit = |_| {
        let began = Instant::now();
        let name = server.saggar_ok(&run);
        (began.elapsed(), name.trim().to_owned())
    };
    // The first submission compiles the plugin, and a test machine is also busy with other tests.
    let submitted: Vec<(Duration, String)> = (0..6).map(submit).collect();
    let quickest = submitted[1..].iter().map(|(took, _)| *took).min().unwrap();
    println!("the first took {:?}, the quickest of five others {quickest:?}", submitted[0].0);
    assert!(quickest < Duration::from_secs(1), "{submitted:?}");
    for (_, job) in &submitted {
        assert_eq!(server.wait_for_job(job)["state"], "SUCCEEDED", "{job}: nobody stayed with it");
    }
}

#[test]
fn a_run_with_task_queue_and_parameters_is_awaited() {
    let place = tempfile::tempdir().unwrap();
    let server = project(place.path());
    let run = ["run", "--task", "train", "--queue", "night", "-m", "by night", "--wait", "--", "steps=5"];
    let (out, notes) = in_project(&server, place.path(), &run);
    assert!(out.starts_with("Job steady-1 SUCCEEDED after "), "{out}");
    assert!(notes.contains("Submitted job steady-1 (") && notes.contains(") to queue night"), "{notes}");
    let job = server.job("steady-1");
    assert_eq!((&job["queue"], &job["step"]), (&json!("night"), &json!(5)), "flags win over the task: {job}");
    assert_eq!(job["spec"]["message"], "by night");
}

#[test]
fn the_json_of_a_submission_matches_its_text_output() {
    let place = tempfile::tempdir().unwrap();
    let server = project(place.path());
    let (out, _) = in_project(&server, place.path(), &["--json", "run", "--task", "train", "--queue", "night"]);
    let submitted = json_of(&out);
    let job = server.wait_for_job("steady-1");
    for field in ["name", "id", "queue"] {
        assert_eq!((&submitted[field], submitted[field].is_string()), (&job[field], true), "{submitted}");
    }
    assert_eq!((&job["name"], &job["queue"]), (&json!("steady-1"), &json!("night")));
    let (out, notes) = in_project(&server, place.path(), &["--json", "run", "--task", "train", "--wait"]);
    let ended = json_of(&out);
    assert_eq!((&ended["name"], &ended["queue"]), (&json!("steady-2"), &json!("default")), "{ended}");
    assert_eq!((&ended["id"], &ended["state"]), (&server.job("steady-2")["id"], &json!("SUCCEEDED")));
    assert_eq!(notes, "", "a document and nothing else");
    // The exact sentence.
    let (_, notes) = in_project(&server, place.path(), &["run", "--task", "train", "--wait"]);
    let id = server.job("steady-3")["id"].as_str().unwrap().to_owned();
    assert!(notes.contains(&format!("Submitted job steady-3 ({id}) to queue default\n")), "{notes}");
}

#[test]
fn a_followed_run_prints_its_log_to_the_end() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let run = ["run", steady.to_str().unwrap(), "--device", "cpu", "-f", "--", "steps=5"];
    let followed = server.saggar(&run);
    let [out, notes] = [followed.stdout, followed.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(followed.status.code(), Some(0), "{notes}");
    assert!(notes.contains("Submitted job steady-1 ("), "{notes}");
    let log = server.saggar_ok(&["logs", "steady-1"]);
    let end = out.strip_prefix(log.as_str()).unwrap_or_else(|| panic!("the whole log first: {out}"));
    assert!(log.contains("step 5\n") && end.starts_with("Job steady-1 SUCCEEDED after "), "{out}");
    // It ends with the job, also if the job fails.
    let run = ["run", steady.to_str().unwrap(), "--device", "cpu", "--wait", "--", "steps=5", "fail_at=3"];
    let waited = server.saggar(&run);
    let notes = String::from_utf8(waited.stderr).unwrap();
    assert_eq!(waited.status.code(), Some(20), "{notes}");
    assert!(String::from_utf8(waited.stdout).unwrap().starts_with("Job steady-2 FAILED after "), "{notes}");
}

#[test]
fn a_job_that_requires_a_gpu_is_refused_without_one() {
    let place = tempfile::tempdir().unwrap();
    let steady = guest("steady");
    let file = place.path().join("saggar.toml");
    let task = |name: &str, gpu: &str| {
        format!("[task.{name}]\nplugin = \"steady\"\nargs = {{ steps = 3 }}\ngpu = \"{gpu}\"\n")
    };
    let text = format!("manifest = 1\n[project]\nname = \"steady\"\n[plugin.steady]\nsource = {steady:?}\n");
    std::fs::write(&file, format!("{text}{}{}", task("must", "required"), task("may", "preferred"))).unwrap();
    // A machine without adapters.
    let mut serve = Command::new(binary());
    serve.args(["serve", "--addr", "127.0.0.1:0", "--home"]).arg(place.path());
    serve.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
    let server = ServerProcess::from_command(serve, place.path());
    let run = |arguments: &[&str]| server.command(arguments).current_dir(place.path()).output().unwrap();
    for required in [&["run", "--task", "must"][..], &["run", "--task", "may", "--gpu"], &["run", "--gpu=required"]] {
        let required = if required.contains(&"--task") {
            run(required)
        } else {
            run(&[required, &[steady.to_str().unwrap(), "--", "steps=3"]].concat())
        };
        let said = String::from_utf8(required.stderr).unwrap();
        assert_eq!(required.status.code(), Some(7), "{said}");
        assert!(said.contains("this machine has no gpu; it has: auto, cpu"), "{said}");
    }
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]), "nothing runs on something else");
    for allowed in [
        &["run", "--task", "may", "--wait", "--json"][..],
        &["run", "--task", "must", "--device", "cpu", "--wait", "--json"],
    ] {
        let ended = run(allowed);
        let ended = json_of(&String::from_utf8(ended.stdout).unwrap());
        assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
        assert!(ended["device"].as_str().unwrap().starts_with("cpu"), "{ended}");
    }
}

#[test]
fn an_output_file_is_followed_while_the_job_writes_it() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000).with_parameter("diary", "notes/diary.txt").submit(&server);
    let mut tail = server.command(&["output", "tail", "-f", &job, "notes/diary.txt"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut stream = tail.stdout.take().unwrap();
    // The file has grown three times, and the job is still running.
    let mut tail_output = Vec::new();
    while tail_output.len() < 150 {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "it ended before the job: {} bytes", tail_output.len());
        tail_output.extend_from_slice(&piece[..count]);
    }
    assert_eq!(server.job(&job)["state"], "RUNNING");
    server.saggar_ok(&["stop", &job]);
    assert_eq!(server.wait_for_job(&job)["state"], "CANCELLED");
    stream.read_to_end(&mut tail_output).unwrap();
    assert!(tail.wait().unwrap().success(), "it ends with the job");
    let out = home.path().join("out");
    server.saggar_ok(&["output", "get", &job, "notes/diary.txt", "-o", out.to_str().unwrap()]);
    let whole = std::fs::read(out.join("notes/diary.txt")).unwrap();
    assert!(tail_output == whole, "{} bytes of {}", tail_output.len(), whole.len());
    // Once, without following.
    assert_eq!(server.saggar_ok(&["output", "tail", &job, "notes/diary.txt"]).into_bytes(), whole);
}

#[test]
fn the_run_summary_names_the_best_and_the_newest_checkpoint() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let lenet = saggar_tests::lenet();
    let run =
        ["run", lenet.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--keep-best", "max:validation/loss"];
    // The loss falls, so the requested worst epoch is an early one.
    let more = ["--checkpoint-every", "60steps", "--wait", "--", "epochs=3"];
    server.saggar_ok(&[&run[..], &more].concat());
    let listed = server.get("/api/v1/jobs/lenet-1/checkpoints")["checkpoints"].clone();
    let listed = listed.as_array().unwrap();
    let best = listed.iter().find(|checkpoint| checkpoint["best"] == true).unwrap();
    let newest = &listed[0];
    assert_ne!(best["step"], newest["step"]);
    let place = |of: &Value| format!("step {}, epoch {}", of["step"], of["epoch"]);
    let value = best["metrics"]["validation/loss"].as_f64().unwrap();
    let line = format!("{} (validation/loss {value:.4}), newest {}", place(best), place(newest));
    let status = server.saggar_ok(&["status", "lenet-1"]);
    let best_line = status.lines().find_map(|line| line.trim().strip_prefix("best ")).map(str::trim);
    assert_eq!(best_line, Some(line.as_str()), "{status}");
    assert!(newest["epoch"].as_u64() > best["epoch"].as_u64(), "{line}");
}
