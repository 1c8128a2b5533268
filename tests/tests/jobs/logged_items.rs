//! Images, tables and histograms that trainings log, with the real binary: read over REST and by the command, after a kill,
//! and with items that the host refuses.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_store::image_decoder;
use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, client_output, kill_9, lenet, worker_processes};
use serde_json::{Value, json};

/// Submits a training that logs two images, a table and a histogram at each step.
fn submit_logging(server: &ServerProcess, steps: u64) -> String {
    SteadyJob::with_steps(steps).with_parameter("items", true).submit(server)
}

/// Returns all items of a job that a query selects, page by page.
fn list(server: &ServerProcess, job: &str, query: &str) -> Vec<Value> {
    let (mut items, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/api/v1/jobs/{job}/logged?{query}&after={after}"));
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return items,
        }
    }
}

fn keys(items: &[Value]) -> Vec<String> {
    let key = |item: &Value| {
        format!("{}/{}/{}", item["step"], item["kind"].as_str().unwrap(), item["name"].as_str().unwrap())
    };
    items.iter().map(key).collect()
}

/// Returns the keys of everything that `submit_logging` logs in these steps.
fn expected_keys(steps: u64) -> Vec<String> {
    let names = ["histogram/weights/all", "image/pictures/gradient", "image/pictures/grey", "table/classes"];
    (1..=steps).flat_map(|step| names.map(|name| format!("{step}/{name}"))).collect()
}

#[test]
fn logged_items_are_listed_filtered_fetched_and_removed() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = submit_logging(&server, 12);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let path = format!("/api/v1/jobs/{job}/logged");
    assert_eq!(keys(&list(&server, &job, "limit=5")), expected_keys(12));
    assert_eq!(keys(&list(&server, &job, "step=3&kind=image")), ["3/image/pictures/gradient", "3/image/pictures/grey"]);
    let some = list(&server, &job, "name=weights/all&from=11&values");
    assert_eq!(keys(&some), ["11/histogram/weights/all", "12/histogram/weights/all"]);
    let counts = some[0]["histogram"]["counts"].as_array().unwrap();
    assert_eq!((counts.len(), counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()), (24, 2000));
    assert_eq!(some[0]["histogram"]["edges"].as_array().unwrap().len(), 25);

    let image = server.request("GET", &format!("{path}/12/image/pictures/gradient"), HttpPayload::Nothing);
    assert_eq!(
        (image.status, image.header("content-type"), image.header("x-content-type-options")),
        (200, "image/png", "nosniff")
    );
    let saved = home.path().join("pictures");
    server.saggar_ok(&["logged", &job, "--kind", "image", "--step", "12", "-o", saved.to_str().unwrap()]);
    let decode = |name: &str| image_decoder::decode(&std::fs::read(saved.join(name)).unwrap(), 1 << 20).unwrap();
    let gradient = decode("pictures/gradient/12.png");
    assert_eq!((gradient.height, gradient.width, gradient.channels), (16, 16, 3));
    assert_eq!((&gradient.pixels[..3], &gradient.pixels[17 * 3..][..3]), (&[0, 0, 12][..], &[16, 16, 12][..]));
    // A `float32` image whose channels come first.
    let grey = decode("pictures/grey/12.png");
    assert_eq!((grey.channels, grey.pixels[0], grey.pixels[100]), (1, 48, 148));

    let table = server.get(&format!("{path}/7/table/classes"));
    assert_eq!(table["columns"][1]["values"], json!([0.507, 0.257, null]));
    assert_eq!(table["columns"][0]["values"][2], "<b>bird</b>");
    for (wrong, status) in [
        ("/7/table/missing", 404),
        ("/8/table/..%2F..%2Foutput", 404),
        ("/x/table/classes", 400),
        ("/7/picture/classes", 400),
        ("?kind=picture", 400),
        ("?after=nonsense", 400),
        ("?step=-1", 400),
    ] {
        let answer = server.request("GET", &format!("{path}{wrong}"), HttpPayload::Nothing);
        assert_eq!(answer.status, status, "{wrong}: {}", answer.text);
    }
    server.saggar_ok(&["rm", &job, "--yes"]);
    let folders = std::fs::read_dir(home.path().join("jobs")).unwrap();
    assert_eq!(folders.count(), 0, "the items are removed with the job");
}

#[test]
fn the_command_summarizes_lists_and_prints_logged_items() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = submit_logging(&server, 3);
    server.wait_for_job(&job);
    let summary = server.saggar_ok(&["logged", &job]);
    let rows: Vec<Vec<&str>> = summary.lines().skip(1).map(|line| line.split_whitespace().take(5).collect()).collect();
    assert_eq!(rows[0], ["histogram", "weights/all", "3", "1", "3"], "{summary}");
    assert_eq!((rows.len(), rows[3][1]), (4, "classes"), "{summary}");
    let listed = server.saggar_ok(&["logged", &job, "--name", "classes"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let table = server.saggar_ok(&["logged", &job, "--name", "classes", "--step", "2"]);
    assert!(table.contains("cat") && table.contains("0.502") && table.contains("true"), "{table}");
    let histogram = server.saggar_ok(&["logged", &job, "--name", "weights/all", "--step", "2"]);
    assert_eq!(histogram.lines().count(), 25, "{histogram}");
    let quiet = server.saggar_ok(&["logged", &job, "--step", "1", "--quiet"]);
    assert_eq!(quiet.lines().collect::<Vec<_>>(), expected_keys(1));
    let missing = server.saggar(&["logged", &job, "--name", "nothing"]);
    let problem = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success() && problem.contains("logged no such item"), "{problem}");
}

/// A training that is killed repeats the steps after its checkpoint. What it logs again replaces what it logged before.
#[test]
fn a_killed_training_has_each_logged_item_once() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(90)
        .with_parameter("items", true)
        .with_parameter("spin", 20)
        .with_field("checkpoint_every", json!({ "steps": 20 }))
        .submit(&server);
    // After the checkpoint of step 20, and before the next one.
    server.wait_for("items of step 26", |server| (!list(server, &job, "step=26").is_empty()).then_some(()));
    for worker in worker_processes(server.pid()) {
        kill_9(worker);
    }
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["step"]), (&json!("SUCCEEDED"), &json!(90)), "{ended}");
    assert_eq!(ended["attempt"], 2, "{ended}");
    assert_eq!(keys(&list(&server, &job, "")), expected_keys(90));
    let attempt = |step: u64| {
        let table = server.get(&format!("/api/v1/jobs/{job}/logged/{step}/table/classes"));
        table["columns"][2]["values"][0].as_u64().unwrap()
    };
    let resumed = ended["attempts"][1]["first_step"].as_u64().unwrap();
    assert!((20..=40).contains(&resumed), "{ended}");
    assert_eq!((attempt(resumed), attempt(resumed + 1), attempt(90)), (1, 2, 2));
}

#[test]
fn refused_items_end_the_training_with_the_reason() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let cases = [
        ("huge", "an image of uint8[4096, 4096, 1] is too large to be logged"),
        ("nan", "element 1 of the image is NaN"),
        ("layout", "the layout `chw` has the other order"),
        ("bins", "a histogram has 1 to 512 bins, not 0"),
        ("edges", "the edges of a histogram are finite, and one is NaN"),
        ("ragged", "`a` has 1 and `b` has 0"),
        ("path", "is made of names of letters, digits"),
        ("empty", "a table has 1 to 64 columns, not 0"),
    ];
    for (kind, words) in cases {
        let job = SteadyJob::with_steps(2).with_parameter("bad_item", kind).with_field("retry", 0).submit(&server);
        let ended = server.wait_for_job(&job);
        assert_eq!(ended["state"], "FAILED", "{kind}: {ended}");
        let message = ended["message"].as_str().unwrap();
        assert!(message.contains(words) && message.contains("logged.rs"), "{kind}: {message}");
        assert_eq!(list(&server, &job, ""), Vec::<Value>::new(), "{kind}");
    }
}

/// More than a job keeps: the training goes on, and its log says once what is dropped.
#[test]
fn items_beyond_the_limit_of_a_job_do_not_end_a_training() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1).with_parameter("flood", 12_000).submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let log = server.saggar_ok(&["logs", &job]);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("a job keeps at most 10000 images")).collect();
    assert!(lines.len() == 1 && lines[0].contains("the histogram `flood` of step 10000 and later ones"), "{log}");
    let items = list(&server, &job, "");
    assert_eq!((items.len(), items[9999]["step"].as_u64()), (10_000, Some(9_999)));
}

#[test]
fn lenet_logs_its_wrong_predictions_and_histograms_of_its_weights() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--wait", "--"];
    server.saggar_ok(&[&run[..], &["epochs=2", "log_images=3"]].concat());
    let histograms = list(&server, "lenet-1", "kind=histogram&values");
    assert_eq!(histograms.len(), 2 * 8, "eight weights after each of two epochs");
    for histogram in &histograms {
        assert!(histogram["name"].as_str().unwrap().starts_with("weights/"), "{histogram}");
        let counts = histogram["histogram"]["counts"].as_array().unwrap();
        assert_eq!(counts.len(), 64);
    }
    let images = list(&server, "lenet-1", "kind=image");
    assert_eq!(images.len(), 3);
    let table = server.get(&format!("/api/v1/jobs/lenet-1/logged/{}/table/wrong", images[0]["step"]));
    let [classes, predicted] = [1, 2].map(|column| table["columns"][column]["values"].as_array().unwrap().clone());
    assert!(
        classes.len() == 3 && classes.iter().zip(&predicted).all(|(class, predicted)| class != predicted),
        "{table}"
    );

    server.saggar_ok(&[&run[..], &["epochs=1", "log_images=0", "log_histograms=false"]].concat());
    assert_eq!(list(&server, "lenet-2", ""), Vec::<Value>::new());
    read_with_tensorboard(&server, home.path());
}

/// TensorBoard's own reader has the images and histograms of the export.
fn read_with_tensorboard(server: &ServerProcess, home: &Path) {
    let logs = home.join("runs");
    let export = ["metrics", "lenet-1", "--tensorboard", logs.to_str().unwrap(), "--json"];
    let exported: Value = serde_json::from_str(&server.saggar_ok(&export)).unwrap();
    assert_eq!(exported["logged"], 16 + 3, "{exported}");
    let text = client_output("tests/clients/observability.txt", "tensorboard_items.py", &[logs.to_str().unwrap()]);
    let read: Value = serde_json::from_str(&text).unwrap();
    let run = &read["lenet-1"];
    let stored = list(server, "lenet-1", "kind=histogram&values");
    assert_eq!(run["histograms"].as_object().unwrap().len(), 8);
    for item in stored {
        let (edges, counts) = (&item["histogram"]["edges"], &item["histogram"]["counts"]);
        let found = run["histograms"][item["name"].as_str().unwrap()].as_array().unwrap();
        let found = found.iter().find(|found| found["step"] == item["step"]).unwrap();
        let bins = found["bins"].as_array().unwrap();
        assert_eq!(bins.len(), 64);
        for (at, bin) in bins.iter().enumerate() {
            let expected = [&edges[at], &edges[at + 1], &counts[at]].map(|number| number.as_f64().unwrap());
            // TensorBoard has them in 32 bits.
            let expected = expected.map(|number| number as f32);
            assert_eq!([0, 1, 2].map(|part| bin[part].as_f64().unwrap() as f32), expected, "bin {at} of {item}");
        }
    }
    let images = run["images"].as_object().unwrap();
    assert_eq!(images.keys().collect::<Vec<_>>(), ["wrong/01", "wrong/02", "wrong/03"]);
    for (name, found) in images {
        assert_eq!((&found[0]["width"], &found[0]["height"]), (&json!("8"), &json!("8")), "{name}");
        assert_eq!(found[0]["is_png"], true, "{name}");
    }
}
