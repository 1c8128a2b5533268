//! `saggar bench`, and the output of `saggar run --estimate` before a job starts. Checks the form of the output, not
//! the speed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use saggar_tests::{ServerProcess, binary, guest, lenet, root};
use serde_json::Value;

/// Returns the two output streams and the exit code of a command without a server.
fn bench(arguments: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(binary());
    command.arg("bench").args(arguments).current_dir(root()).stdin(Stdio::null());
    // Nothing listens at this address, and the command must not connect.
    command.env("SAGGAR_HOST", "http://127.0.0.1:9").env("SAGGAR_HOME", "/nonexistent");
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_training_is_benchmarked_on_each_device() {
    let (steady, lenet) = (guest("steady"), lenet());
    let (out, errors, code) =
        bench(&["train", path_str(&steady), "--devices", "cpu,vulkan:99", "--steps", "6", "--json"]);
    assert_eq!(code, 8, "a device is missing: {errors}");
    let answer = json(&out);
    let [cpu, missing] = answer["devices"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&cpu["device"], &cpu["software"], &cpu["steps"]), (&"cpu".into(), &false.into(), &6.into()));
    // The plugin's default.
    assert_eq!(cpu["steps_in_all"], 100);
    for field in ["first_step_seconds", "steps_per_second", "gpu_seconds", "seconds"] {
        assert!(cpu[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {cpu}");
    }
    assert_eq!((&cpu["estimate"]["steps"], &cpu["estimate"]["from_steps"]), (&6.into(), &3.into()));
    // The error of a missing device names the available ones, and does not affect the other device.
    let message = missing["error"]["message"].as_str().unwrap();
    assert!(message.contains("vulkan:99") && message.contains("cpu"), "{message}");

    // A folder is imported, parameters can have every form, and the whole training is estimated.
    let arguments =
        ["train", path_str(&lenet), "--devices", "cpu", "--steps", "12", "--total", "--data", "examples/digits"];
    let (out, errors, code) = bench(&[&arguments[..], &["--param", "batch=100", "--", "epochs=3"]].concat());
    assert_eq!(code, 0, "{errors}");
    let [head, row] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    let named = ["DEVICE", "ADAPTER", "DRIVER", "FIRST STEP", "STEPS/S", "GPU-SEC", "12 STEPS", "ESTIMATE"];
    assert!(named.iter().all(|name| head.contains(name)), "{head}");
    assert!(row.starts_with("cpu ") && row.contains(" for 42 (from 14 steps)"), "{row}");
}

#[test]
fn a_software_adapter_is_benchmarked_and_labelled() {
    let steady = guest("steady");
    let (out, errors, code) = bench(&["train", path_str(&steady), "--devices", "gpu", "--steps", "4"]);
    if code == 8 && errors.contains("no device gpu") {
        assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no Vulkan adapter, and REQUIRE_GPU is set");
        println!("SKIP: no Vulkan adapter is here");
        return;
    }
    assert_eq!(code, 0, "{errors}");
    let row = out.lines().nth(1).unwrap();
    assert!(row.split_whitespace().next().unwrap().contains(':'), "{row}");
    assert_eq!(row.contains("llvmpipe"), row.contains(", software"), "{row}");
}

/// Checks the kernels of a trace: each is a complete event with its work and its rates. Returns their number.
fn check_trace_kernels(trace: &Value, process: u64) -> usize {
    let events = trace["traceEvents"].as_array().unwrap();
    let of_process = || events.iter().filter(|event| event["pid"] == process);
    assert!(of_process().any(|event| event["ph"] == "M" && event["name"] == "process_name"));
    let kernels: Vec<&Value> = of_process().filter(|event| event["cat"] == "kernel").collect();
    for kernel in &kernels {
        assert_eq!(kernel["ph"], "X");
        let (args, number) = (&kernel["args"], |value: &Value| value.as_f64().is_some_and(|number| number >= 0.0));
        assert!(number(&kernel["ts"]) && number(&kernel["dur"]) && !kernel["name"].as_str().unwrap().is_empty());
        for field in ["flop", "bytes", "flop_per_second", "bytes_per_second", "percent_of_peak"] {
            assert!(number(&args[field]), "{field}: {kernel}");
        }
        assert!(args["estimated"].is_boolean(), "{kernel}");
    }
    kernels.len()
}

#[test]
fn a_profile_is_a_trace_of_kernels_with_roofline_rates() {
    let (steady, place) = (guest("steady"), tempfile::tempdir().unwrap());
    let file = place.path().join("out.json");
    // A missing device does not affect the profile of the others.
    let arguments =
        ["train", path_str(&steady), "--devices", "cpu,gpu", "--steps", "5", "--profile", path_str(&file), "--json"];
    let (out, errors, code) = bench(&arguments);
    let devices = json(&out)["devices"].as_array().unwrap().clone();
    assert!(code == 0 || (code == 8 && errors.contains("no device gpu")), "{code}: {errors}");
    let trace = json(&std::fs::read_to_string(&file).unwrap());
    for (number, device) in (1..).zip(devices.iter().filter(|device| device["error"].is_null())) {
        let profile = &device["profile"];
        assert!(profile["peak"]["flop_per_second"].as_f64().unwrap() > 0.0, "{profile}");
        assert!(profile["peak"]["bytes_per_second"].as_f64().unwrap() > 0.0, "{profile}");
        let top = profile["kernels"][0].clone();
        assert!(top["seconds"].as_f64().unwrap() > 0.0 && top["calls"].as_u64().unwrap() > 0, "{top}");
        assert!(check_trace_kernels(&trace, number) >= 5, "{device}");
        assert_eq!(trace["otherData"]["devices"][number as usize - 1]["device"], device["device"]);
    }
}

#[test]
fn predictions_are_benchmarked_by_batch_size() {
    let home = tempfile::tempdir().unwrap();
    drop(ServerProcess::start_with_digits(home.path(), &[]));
    let version = home.path().join("models/digits/1");
    let (home, lenet) = (path_str(home.path()), lenet());
    let sizes = ["--devices", "cpu", "--batch", "1,8", "--requests", "3", "--json"];
    for model in [
        &["digits", "--home", home][..],
        &["digits@1", "--home", home],
        &[path_str(&version)],
        &[path_str(&lenet), "--model", path_str(&version)],
    ] {
        let (out, errors, code) = bench(&[&["infer"], model, &sizes[..]].concat());
        assert_eq!(code, 0, "{model:?}: {errors}");
        let answer = json(&out);
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.iter().map(|row| row["batch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 8]);
        for row in results {
            let [p50, p99, rate] =
                ["p50_seconds", "p99_seconds", "requests_per_second"].map(|key| row[key].as_f64().unwrap());
            assert!(p50 > 0.0 && p99 >= p50 && rate > 0.0 && row["requests"] == 3, "{row}");
        }
    }
    for (arguments, code, words) in [
        (vec!["digits@7", "--home", home], 3, "no model digits@7"),
        (vec!["nowhere"], 3, "no model nowhere"),
        (vec![path_str(&lenet)], 2, "--model"),
    ] {
        let (_, errors, found) = bench(&[&["infer"], &arguments[..]].concat());
        assert!(found == code && errors.contains(words), "{arguments:?}: {found} {errors}");
    }
}

#[test]
fn measurements_of_plugins_are_saved_and_compared() {
    let (steady, place) = (guest("steady"), tempfile::tempdir().unwrap());
    let file = place.path().join("train.json");
    let train = ["train", path_str(&steady), "--devices", "cpu", "--steps", "60", "--save", path_str(&file)];
    let (_, errors, code) = bench(&train);
    assert_eq!(code, 0, "{errors}");
    let saved = json(&std::fs::read_to_string(&file).unwrap());
    let samples = saved["series"][0]["samples"].as_array().unwrap();
    assert!(saved["kind"] == "train" && samples.len() > 3, "{saved}");
    assert!(samples.iter().all(|sample| sample.as_f64().unwrap() > 0.0), "{saved}");
    assert_eq!(saved["result"]["devices"][0]["device"], "cpu");
    let (out, errors, code) = bench(&["diff", path_str(&file), path_str(&file)]);
    assert!(code == 0 && out.contains("step seconds") && out.contains("unchanged"), "{out}{errors}");
}

#[test]
fn a_dataset_is_read_as_trainings_read_it() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let file = home.path().join("data.json");
    let state = ["--home", path_str(home.path())];
    let arguments = ["data", "digits/1", "--batch", "100", "--epochs", "2", "--json", "--save", path_str(&file)];
    let (out, errors, code) = bench(&[&arguments[..], &state].concat());
    assert_eq!(code, 0, "{errors}");
    let read = &json(&out)["result"];
    // 8 by 8 pixels and a label.
    assert_eq!((&read["items"], &read["item_bytes"], &read["version"]), (&1797.into(), &65.into(), &1.into()));
    for epoch in ["cold", "warm"] {
        let [seconds, items, megabytes, batches] =
            ["seconds", "items_per_second", "megabytes_per_second", "batches_per_second"]
                .map(|name| read[epoch][name].as_f64().unwrap());
        assert!(seconds > 0.0, "{read}");
        assert!((megabytes * 1e6 / items / 65.0 - 1.0).abs() < 1e-6, "{read}");
        // Eighteen batches in an epoch, the last of them smaller.
        assert!((items / batches * 18.0 / 1797.0 - 1.0).abs() < 1e-6, "{read}");
    }
    let (out, _, _) = bench(&[&["diff"], &[path_str(&file); 2][..]].concat());
    assert!(out.contains("MB/s") && out.contains("unchanged"), "{out}");
    let (out, errors, code) = bench(&[&["data", "digits", "--in-order", "--fields", "label"], &state[..]].concat());
    assert!(code == 0 && out.contains("MB/S") && errors.contains("items of 1 bytes"), "{out}{errors}");
    for (arguments, code, words) in [
        (vec!["data", "absent"], 3, "absent"),
        (vec!["data", "digits", "--fields", "sound"], 20, "sound"),
        (vec!["data", "digits", "--split", "dusk"], 20, "dusk"),
    ] {
        let (_, errors, found) = bench(&[&arguments[..], &state].concat());
        assert!(found == code && errors.contains(words), "{arguments:?}: {found} {errors}");
    }
}

#[test]
fn the_speed_up_of_several_workers_is_measured_and_fitted() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let chart = home.path().join("speed-up.png");
    let arguments = ["bench", "scale", "lenet", "--data", "digits", "--device", "cpu", "--workers", "2,1"];
    let output = server
        .saggar_ok(&[&arguments[..], &["--repetitions", "3", "--png", path_str(&chart), "--", "epochs=3"]].concat());
    let lines: Vec<&str> = output.lines().collect();
    let [head, one, two, fit] = lines[..] else { panic!("{output}") };
    assert!(["WORKERS", "SPEED-UP", "AMDAHL", "IDEAL"].iter().all(|name| head.contains(name)), "{output}");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // The number, the time with its unit, the measured, fitted and ideal speed-up, and the efficiency.
    assert_eq!(
        (&cells(one)[0], &cells(one)[3..]),
        (&"1".to_owned(), &["1.00", "1.00", "1", "100%"].map(str::to_owned)[..])
    );
    assert_eq!((&*cells(two)[0], &*cells(two)[5]), ("2", "2"));
    assert!(fit.starts_with("parallel share p = ") && fit.contains("95 % interval"), "{fit}");
    assert!(std::fs::read(&chart).unwrap().starts_with(b"\x89PNG"));
    let jobs = json(&server.saggar_ok(&["--json", "ps", "-a"]));
    assert_eq!(jobs.as_array().unwrap().len(), 0, "measured jobs are removed: {jobs}");
    let refused = server.saggar(&["bench", "scale", "lenet", "--data", "digits", "--workers", "2,4"]);
    assert!(refused.status.code() == Some(2) && String::from_utf8_lossy(&refused.stderr).contains("--workers 1,2,4"));
}

#[test]
fn an_impossible_benchmark_is_refused_with_a_hint() {
    let lenet = lenet();
    for (arguments, code, words) in [
        (vec!["train", "nowhere.wasm"], 3, "no plugin nowhere.wasm"),
        (vec!["train", path_str(&lenet), "--data", "nowhere"], 3, "no folder nowhere"),
        (vec!["train", path_str(&lenet), "--data", "examples/curl"], 7, "examples/curl"),
        (vec!["train", path_str(&lenet), "--devices", "cpu"], 20, "nothing is mounted"),
        (vec!["train", path_str(&lenet), "--steps", "0"], 2, "--steps"),
        (
            vec!["train", path_str(&lenet), "--data", "examples/digits", "--data", "examples/curl"],
            2,
            "--data examples/curl:/other",
        ),
        (
            vec!["train", path_str(&lenet), "--data", "examples/digits", "--profile", "/nonexistent/out.json"],
            1,
            "/nonexistent/out.json",
        ),
    ] {
        let (out, errors, found) = bench(&arguments);
        assert_eq!(found, code, "{arguments:?}: {errors}");
        assert!(out.is_empty() && errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_run_estimated_past_its_time_limit_is_warned_about_before_it_starts() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let run = |time: &str| {
        let run = ["run", path_str(&steady), "--device", "cpu", "--estimate", "--max-runtime", time, "--json"];
        let output = server.saggar(&[&run[..], &["--", "steps=40", "model=report"]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        (json(&String::from_utf8(output.stdout).unwrap()), errors)
    };
    let (job, errors) = run("1ms");
    let estimate = &job["estimate"];
    assert_eq!((&estimate["steps"], &estimate["device"]), (&40.into(), &"cpu".into()));
    assert_eq!(estimate["exceeds_max_runtime"], true);
    assert!(errors.contains("warning") && errors.contains("--max-runtime"), "{errors}");
    server.wait_for_job(job["name"].as_str().unwrap());
    let (job, errors) = run("1h");
    assert_eq!((&job["estimate"]["exceeds_max_runtime"], errors.as_str()), (&false.into(), ""));
    let ended = server.wait_for_job(job["name"].as_str().unwrap());
    assert_eq!((&ended["state"], &ended["published"][0]["version"]), (&"SUCCEEDED".into(), &1.into()), "{ended}");
    // The measurements published nothing, and left no jobs.
    let jobs: Value = json(&server.saggar_ok(&["--json", "ps", "-a"]));
    assert_eq!(jobs.as_array().unwrap().len(), 2, "{jobs}");
}

#[test]
fn an_estimate_is_printed_in_every_output_format() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let run = |flags: &[&str]| {
        let run = ["run", path_str(&steady), "--device", "cpu", "--estimate"];
        let output = server.saggar(&[&run[..], flags, &["--", "steps=4"]].concat());
        let [out, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{flags:?}: {errors}");
        (out, errors)
    };
    let (out, _) = run(&["--json", "--wait"]);
    let job = json(&out);
    assert_eq!((&job["state"], &job["estimate"]["steps"]), (&"SUCCEEDED".into(), &4.into()), "{job}");
    let (out, _) = run(&["--json", "--follow"]);
    assert_eq!(json(out.lines().last().unwrap())["estimate"]["steps"], 4, "{out}");
    let (_, errors) = run(&["--quiet"]);
    assert!(errors.contains("estimate") && errors.contains("for 4 steps"), "{errors}");
}

#[test]
fn an_interrupted_benchmark_leaves_no_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    // Each step takes a second or more, and one step is not enough for an estimate.
    let run = ["run", path_str(&steady), "--device", "cpu", "--estimate", "--", "steps=1000", "spin=3000"];
    let mut child = server.command(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let jobs = |server: &ServerProcess| json(&server.saggar_ok(&["--json", "ps", "-a"])).as_array().unwrap().clone();
    server.wait_for("the measurement", |server| jobs(server).iter().find(|job| job["state"] == "RUNNING").map(drop));
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{errors}");
    assert!(errors.contains("nothing is started"), "{errors}");
    assert!(jobs(&server).is_empty(), "{:?}: {errors}", jobs(&server));
}
