//! A check of guest libraries: the preprocessing of an image input that a training declares.

use std::path::Path;

use serde_json::json;

use crate::ServerProcess;

/// Trains the plugin `mlp` of another language than Rust with a declared preprocessing, on the dataset `digits`, and
/// checks what the served model declares.
///
/// # Panics
/// Panics if the training fails or the declaration differs.
pub fn check_declared_input_of_mlp(server: &ServerProcess, component: &Path) {
    let component = component.to_str().expect("a path in UTF-8");
    let run = ["run", component, "--data", "digits", "--device", "cpu", "--seed", "5", "--"];
    let job = server.saggar_ok(&[&run[..], &["epochs=1", "unit=16", "model=declared", "declared=true"]].concat());
    let job = server.wait_for_job(job.trim());
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    server.wait_for_version("declared", 1);
    let input = &server.get("/api/v1/models/declared")["signature"]["inputs"][0];
    let preprocessing = json!({
        "resize": { "height": 8, "width": 8, "fit": "stretch" }, "colors": "grey", "layout": "nhwc",
        "normalization": { "mean-and-scale": { "mean": [0.0], "scale": [0.003_906_25] } },
    });
    assert_eq!((&input["preprocessing"], &input["shape"]), (&preprocessing, &json!([8, 8])));
    server.saggar_ok(&["predict", "declared", "-i", "image=@examples/digits/held-out/3.png"]);
}
