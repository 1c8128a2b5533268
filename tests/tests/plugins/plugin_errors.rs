//! Errors of plugins: the message of a job names the operands, the layer and the line of the plugin's source.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{ServerProcess, guest};

/// Runs the training with a mistake. Returns the message of the failed job.
fn error_of(server: &ServerProcess, mistake: &str) -> String {
    let plugin = guest("mistakes");
    let shards = if mistake == "shards" { "2" } else { "1" };
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--shards", shards, "--"];
    let job = server.saggar_ok(&[&run[..], &[&format!("mistake={mistake}")]].concat());
    let ended = server.wait_for_job(job.trim());
    assert_eq!(ended["state"], "FAILED", "{mistake}: {ended}");
    let (message, log) = (ended["message"].as_str().unwrap().to_owned(), server.saggar_ok(&["logs", job.trim()]));
    assert!(log.contains(&message), "{mistake}: the log lacks `{message}`: {log}");
    message
}

/// Returns where the source of the guest has the comment `mistake: NAME`.
fn line_of(mistake: &str) -> String {
    let source = include_str!("../../guests/mistakes/src/lib.rs");
    let comment = format!("// mistake: {mistake}");
    let line = source.lines().position(|line| line.trim_end().ends_with(&comment)).unwrap();
    format!("mistakes/src/lib.rs:{}", line + 1)
}

#[test]
fn errors_name_the_operands_the_layer_and_the_line_of_the_plugin() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let expected = [
        (
            "linear",
            "inner dimensions 16 and 20 differ; operands: `hidden` float32[2, 16], variable `fc1/weight` float32[20, 10]",
            "layer `fc1`",
        ),
        (
            "convolution",
            "operands: input `image` float32[2, 1, 4, 4], variable `conv1/weight` float32[8, 1, 5, 5]",
            "layer `conv1`",
        ),
        ("attention", "inner dimensions 6 and 8 differ", "layer `block/attention/query`"),
        ("operator", "inner dimensions 16 and 5 differ", "`hidden` float32[2, 16], variable `weight` float32[5, 3]"),
        ("input-twice", "input \"image\" exists already", ""),
        ("labels", "labels must be an integer type, not float32", "input `label` float32[2]"),
        ("shards", "the update depends on a value that differs between shards", "at x,"),
        ("output-twice", "output \"y\" exists already", ""),
        ("built", "the graph is already built: operands cannot be added to it", ""),
        ("field", "no field `lable`; available: image, label", ""),
        ("mount", "nothing is mounted there", "at /nowhere"),
        ("variable", "is float32[2], not float32[3]", "at w"),
        ("vector-loss", "the loss must be one float, not float32[8, 64]", ""),
        ("metric-twice", "output \"loss\" exists already", ""),
        ("fit-layer", "inner dimensions 64 and 65 differ", "layer `decoder`"),
    ];
    for (mistake, what, which) in expected {
        let message = error_of(&server, mistake);
        for part in [what, which, &line_of(mistake)] {
            assert!(message.contains(part), "{mistake}: `{part}` is missing in: {message}");
        }
        assert_eq!(message.matches(".rs:").count(), 1, "{mistake}: one line of the source: {message}");
    }
}
