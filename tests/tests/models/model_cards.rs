//! Cards of model versions: generated for what jobs publish, and the user's own.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{ServerProcess, plugin};
use serde_json::{Value, json};

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

/// Returns the detail of the version that this job published.
fn version_of(server: &ServerProcess, model: &str, job: &str) -> Value {
    let listed = server.get(&format!("/api/v1/models/{model}"));
    let version = listed["versions"].as_array().unwrap().iter().find(|version| version["source_job"] == job);
    let version = version.unwrap_or_else(|| panic!("no version of {job}: {listed}"))["version"].as_u64().unwrap();
    server.get(&format!("/api/v1/models/{model}/versions/{version}"))
}

#[test]
fn the_card_of_a_trial_names_its_sweep_and_what_was_searched() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let mlp = plugin("mlp");
    let search = ["sweep", mlp.to_str().unwrap(), "--data", "digits", "--project", "digits", "--device", "cpu"];
    let space = ["--grid", "lr=0.05,0.0001", "--metric", "validation/accuracy", "--max-parallel", "1", "-f"];
    server.saggar_ok(&[&search[..], &space, &["--", "epochs=1", "model=net"]].concat());
    let sweep = server.get("/api/v1/sweeps/digits-sweep-1");
    let trials = sweep["trials"].as_array().unwrap();
    server.wait_for_version("net", 2);
    for trial in trials {
        let detail = version_of(&server, "net", trial["job"].as_str().unwrap());
        let is_best = trial["number"] == sweep["best"];
        let expected = json!({
            "sweep": "digits-sweep-1", "number": trial["number"], "parameters": trial["parameters"], "is_best": is_best,
        });
        assert_eq!(detail["origin"], json!({ "trial": expected }));
        let card = detail["card"].as_str().unwrap();
        let best = if is_best { ", its best completed trial" } else { "" };
        let says = format!("The job was trial {} of sweep `digits-sweep-1`{best}.", trial["number"]);
        let searched = format!(
            "## Searched parameters\n\n| Parameter | Value |\n|---|---|\n| lr | {} |\n",
            trial["parameters"]["lr"]
        );
        assert!(card.contains(&says) && card.contains(&searched), "{says}\n{card}");
        let printed = server.saggar_ok(&["models", "show", &format!("net@{}", detail["version"]["version"])]);
        assert!(printed.contains(&says) && printed.contains("digits-sweep-1 trial"), "{printed}");
    }
    // On another server, a job of the same name is not the one that published the version.
    let bundle = home.path().join("net.bundle");
    server.saggar_ok(&["models", "export", "net@1", bundle.to_str().unwrap()]);
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    other.push_digits();
    other.saggar_ok(&[&search[..], &space, &["--", "epochs=1", "model=other"]].concat());
    other.saggar_ok(&["models", "import-bundle", bundle.to_str().unwrap()]);
    let imported = other.get("/api/v1/models/net/versions/1");
    assert_eq!(imported["version"]["source_job"], "digits-1");
    assert_eq!(imported["origin"], Value::Null);
    assert!(!imported["card"].as_str().unwrap().contains("sweep"), "{imported}");
}

#[test]
fn the_card_of_a_copy_in_a_population_has_the_parameters_of_its_parents() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let mlp = plugin("mlp");
    let search = ["sweep", mlp.to_str().unwrap(), "--data", "digits", "--project", "digits", "--device", "cpu"];
    let method = ["--method", "pbt", "--trials", "4", "--generations", "2", "--exploit-quantile", "0.25"];
    let space = ["--space", "lr=log(1e-4,1e-1)", "--metric", "min:loss", "--max-parallel", "1", "-f"];
    server.saggar_ok(&[&search[..], &method, &space, &["--", "epochs=1", "model=net"]].concat());
    let sweep = server.get("/api/v1/sweeps/digits-sweep-1");
    let trials = sweep["trials"].as_array().unwrap();
    let copies: Vec<&Value> = trials.iter().filter(|trial| trial["parent"].is_object()).collect();
    assert!(!copies.is_empty(), "{sweep}");
    for copy in copies {
        let parent = &trials[copy["parent"]["trial"].as_u64().unwrap() as usize - 1];
        let detail = version_of(&server, "net", copy["job"].as_str().unwrap());
        let part = |trial: &Value, step: &Value| json!({ "trial": trial["number"], "from_step": step, "parameters": trial["parameters"] });
        let lineage = json!([part(parent, &json!(0)), part(copy, &copy["parent"]["step"])]);
        assert_eq!(detail["origin"]["trial"]["lineage"], lineage, "{detail}");
        let card = detail["card"].as_str().unwrap();
        for (trial, step) in [(parent, &json!(0)), (copy, &copy["parent"]["step"])] {
            let row = format!("| {step} | trial {}: lr={} |", trial["number"], trial["parameters"]["lr"]);
            assert!(card.contains(&row), "{row}\n{card}");
        }
    }
}

#[test]
fn the_card_of_a_pipeline_step_names_the_run() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let project = tempfile::tempdir().unwrap();
    let manifest = format!(
        "manifest = 1\n[project]\nname = \"digits\"\n[project.defaults]\ndevice = \"cpu\"\n[plugin.mlp]\nsource = {:?}\n\
         [task.train]\nplugin = \"mlp\"\ndata = [\"digits:/data\"]\nargs = {{ epochs = 1, model = \"net\" }}\n\
         [pipeline.nightly]\n[[pipeline.nightly.step]]\nname = \"fit\"\ntask = \"train\"\ncache = true\n",
        plugin("mlp")
    );
    std::fs::write(project.path().join("saggar.toml"), manifest).unwrap();
    // The second run uses the result of the first, which stays the run that trained the version.
    for _ in 0..2 {
        let output =
            server.command(&["pipeline", "run", "nightly", "-f"]).current_dir(project.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let detail = version_of(&server, "net", "digits-1");
    assert_eq!(detail["origin"], json!({ "step": { "run": "nightly-1", "step": "fit" } }));
    let card = detail["card"].as_str().unwrap();
    assert!(card.contains("The job was step `fit` of pipeline run `nightly-1`."), "{card}");
    assert!(server.saggar_ok(&["models", "show", "net@1"]).contains("nightly-1 step fit"));
}
