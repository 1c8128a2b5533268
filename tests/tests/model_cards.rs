//! Cards of model versions: generated for what jobs publish, and the user's own.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{ServerProcess, plugin};
use serde_json::json;

#[test]
fn a_version_of_a_job_has_a_card_of_its_run_and_a_users_card_wins() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let mlp = plugin("mlp");
    let mlp = mlp.to_str().unwrap();
    server.saggar_ok(&[
        "run",
        mlp,
        "--data",
        "digits",
        "--device",
        "cpu",
        "--seed",
        "5",
        "--wait",
        "--",
        "epochs=1",
        "model=net",
    ]);
    server.wait_for_version("net", 1);
    let detail = server.get("/api/v1/models/net/versions/1");
    let card = detail["card"].as_str().unwrap();
    let data = server.get("/api/v1/datasets")["datasets"][0]["digest"].as_str().unwrap().to_owned();
    assert_eq!(
        (&detail["is_card_generated"], &detail["provenance"]["data_sha256"]["/data"]),
        (&json!(true), &json!(data))
    );
    let job = server.job("mlp-1");
    for says in [
        "# net@1",
        "Published by job `mlp-1`",
        &format!("| `/data` | digits/1, `sha256:{data}` |"),
        "| epochs | 1 |",
        "| validation/accuracy |",
        &format!("- Plugin: `sha256:{}`", job["spec"]["plugin"].as_str().unwrap()),
        "- Seed: 5",
        "- Device: cpu",
    ] {
        assert!(card.contains(says), "{says}\n{card}");
    }
    let printed = server.saggar_ok(&["models", "show", "net@1"]);
    assert!(card.lines().all(|line| printed.contains(line)), "{printed}");

    // A bundle takes what the card is made from to another server, where it is the same card.
    let bundle = home.path().join("net.bundle");
    server.saggar_ok(&["models", "export", "net@1", bundle.to_str().unwrap()]);
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    other.saggar_ok(&["models", "import-bundle", bundle.to_str().unwrap()]);
    assert_eq!(other.get("/api/v1/models/net/versions/1")["card"], detail["card"]);

    let own = home.path().join("card.md");
    std::fs::write(&own, "# My net\n").unwrap();
    let weights = server.home().join("models/net/1/weights.safetensors");
    let config = home.path().join("config.json");
    std::fs::write(&config, detail["config"].as_str().unwrap()).unwrap();
    let push = ["models", "push", "net", mlp, "--weights", weights.to_str().unwrap(), "--config"];
    server.saggar_ok(&[&push[..], &[config.to_str().unwrap(), "--card", own.to_str().unwrap()]].concat());
    let pushed = server.get("/api/v1/models/net/versions/2");
    assert_eq!((&pushed["card"], &pushed["is_card_generated"]), (&json!("# My net\n"), &json!(false)));
}
