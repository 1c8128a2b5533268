//! What `saggar deploy` writes is accepted by kubectl, Helm and the published schemas, and the chart renders the manifests.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::{binary, client_output, root};
use serde_json::Value;

const IMAGE: [&str; 4] = ["--image", "registry.example.com/saggar:0.1.0", "--objects", "s3://models/saggar"];

/// Options that together have every object.
const OPTION_SETS: [&[&str]; 5] = [
    &[],
    &["--workers", "0"],
    &["--workers-max", "9", "--service-monitor", "--ingress", "saggar.example.com", "--gpu", "nvidia"],
    &["--workers", "0", "--workers-max", "9", "--keda", "http://prometheus:9090", "--gpu", "amd", "--gpu-count", "2"],
    &["--job-pool", "--kueue-queue", "team-a", "--supplemental-group", "44"],
];

/// Runs a program and returns its standard output.
fn output_of(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {errors}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

fn deploy(command: &[&str], options: &[&str]) -> String {
    output_of(&binary(), &[&["deploy"], command, &IMAGE[..], options].concat())
}

/// Returns the folder with Helm and kubectl.
fn kubernetes_tools() -> PathBuf {
    let folder = output_of(&root().join(".ci/kubernetes-tools"), &[]);
    PathBuf::from(folder.trim())
}

fn check_schemas(arguments: &[&str]) -> String {
    client_output("tests/clients/kubernetes.txt", "deployment_schemas.py", arguments)
}

#[test]
fn manifests_are_valid_in_the_published_schemas_and_the_chart_renders_them() {
    let (place, tools) = (tempfile::tempdir().unwrap(), kubernetes_tools());
    for (number, options) in OPTION_SETS.into_iter().enumerate() {
        let directory = place.path().join(number.to_string());
        std::fs::create_dir(&directory).unwrap();
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let (plain, rendered, chart) = (path("plain.yaml"), path("rendered.yaml"), path("chart"));
        std::fs::write(&plain, deploy(&["kubernetes", "--namespace", "ml"], options)).unwrap();
        let kinds = check_schemas(&["kubernetes", &plain]);
        assert!(kinds.contains("Deployment saggar\n"), "{kinds}");
        deploy(&["helm", &chart], options);
        let helm = tools.join("helm");
        output_of(&helm, &["lint", "--strict", &chart]);
        std::fs::write(&rendered, output_of(&helm, &["template", "saggar", &chart, "--namespace", "ml"])).unwrap();
        check_schemas(&["same", &plain, &rendered]);
    }
}

#[test]
fn a_chart_can_be_changed_by_values_and_refuses_wrong_ones() {
    let (place, tools) = (tempfile::tempdir().unwrap(), kubernetes_tools());
    let chart = place.path().join("chart").to_str().unwrap().to_owned();
    deploy(&["helm", &chart], &[]);
    let helm = |values: &[&str]| {
        Command::new(tools.join("helm")).args(["template", "train", &chart]).args(values).output().unwrap()
    };
    let changed = helm(&["--set", "server.replicas=5,ingress.enabled=true,ingress.host=a.example.com"]);
    let text = String::from_utf8(changed.stdout).unwrap();
    assert!(text.contains("replicas: 5") && text.contains("host: \"a.example.com\""), "{text}");
    assert!(text.contains("http://train:5000") && !text.contains("zz-"), "{text}");
    for wrong in ["server.replicas=0", "server.replica=2", "server.image=", "ingress.enabled=maybe"] {
        let refused = helm(&["--set", wrong]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && errors.contains("values don't meet the specifications"),
            "{wrong}: {errors}"
        );
    }
}

#[test]
fn kustomize_accepts_the_manifests() {
    let (place, tools) = (tempfile::tempdir().unwrap(), kubernetes_tools());
    std::fs::write(place.path().join("saggar.yaml"), deploy(&["kubernetes"], &["--workers-max", "3"])).unwrap();
    let kustomization =
        "resources: [saggar.yaml]\nnamePrefix: blue-\nimages: [{ name: registry.example.com/saggar, newTag: \"2\" }]\n";
    std::fs::write(place.path().join("kustomization.yaml"), kustomization).unwrap();
    let text = output_of(&tools.join("kubectl"), &["kustomize", place.path().to_str().unwrap()]);
    assert!(
        text.contains("name: blue-saggar-worker") && text.contains("image: registry.example.com/saggar:2"),
        "{text}"
    );
    // The references to renamed objects are renamed too.
    assert!(text.contains("serviceAccountName: blue-saggar\n"), "{text}");
}

#[test]
fn wrong_options_are_refused_and_an_existing_chart_is_kept() {
    let run = |arguments: &[&str]| Command::new(binary()).arg("deploy").args(arguments).args(IMAGE).output().unwrap();
    let refused = run(&["kubernetes", "--replicas", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("--replicas") && errors.contains("1 to 1000") && refused.stdout.is_empty(), "{errors}");
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    std::fs::write(place.path().join("mine"), "").unwrap();
    let refused = run(&["helm", directory]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("is not empty"));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn json_is_a_list_that_kubectl_reads() {
    let list: Value = serde_json::from_str(&deploy(&["kubernetes", "--json"], &[])).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&"v1".into(), &"List".into()));
    assert!(list["items"].as_array().unwrap().iter().any(|item| item["kind"] == "Deployment"), "{list}");
}

#[test]
fn the_compose_file_is_valid_in_the_published_specification() {
    let file = root().join("examples/compose/compose.yaml");
    let services = check_schemas(&["compose", file.to_str().unwrap()]);
    assert_eq!(services.trim(), "bucket grafana keys minio postgres prometheus server-1 server-2 worker");
    for name in ["prometheus.yml", "grafana-datasource.yml", "grafana-dashboards.yml"] {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("./{name}:")) && file.with_file_name(name).is_file(), "{name}");
    }
}
