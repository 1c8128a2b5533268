use expect_test::expect_file;
use k8s_openapi::api::apps::v1::Deployment;
use serde::de::DeserializeOwned;

use super::*;
use crate::deploy_options::{GpuDemand, GpuVendor, JobPoolOptions, WorkerScaling};

fn options() -> DeployOptions {
    let (image, objects) = ("registry.example.com/saggar:0.1.0".to_owned(), "s3://models/saggar".to_owned());
    DeployOptions { image, objects, namespace: "ml".to_owned(), ..DeployOptions::default() }
}

/// Options that use every kind of object but the autoscaler of Kubernetes.
fn full_options() -> DeployOptions {
    DeployOptions {
        name: "train".to_owned(),
        replicas: 3,
        workers: 2,
        scaling: Some(WorkerScaling { workers_max: 16, keda_prometheus: Some("http://prometheus:9090".to_owned()) }),
        gpu: Some(GpuDemand { vendor: GpuVendor::Amd, count: 2 }),
        supplemental_groups: vec![44, 109],
        objects_endpoint: Some("http://minio.store.svc:9000".to_owned()),
        objects_region: Some("eu-central-1".to_owned()),
        ingress_host: Some("saggar.example.com".to_owned()),
        ingress_class: Some("nginx".to_owned()),
        ingress_tls_secret: Some("saggar-tls".to_owned()),
        service_monitor: true,
        job_pool: Some(JobPoolOptions { kueue_queue: Some("team-a".to_owned()) }),
        ..options()
    }
}

fn find(options: &DeployOptions, file: &str) -> Option<Value> {
    server_manifests(options).into_iter().find(|manifest| manifest.file == file).map(|manifest| manifest.object)
}

fn typed<T: DeserializeOwned>(options: &DeployOptions, file: &str) -> T {
    serde_json::from_value(find(options, file).unwrap()).unwrap()
}

#[test]
fn the_manifests_of_some_options_are_as_recorded() {
    expect_file!["../../golden/default.yaml"].assert_eq(&manifests_yaml(&options()));
    expect_file!["../../golden/full.yaml"].assert_eq(&manifests_yaml(&full_options()));
    let scaling = Some(WorkerScaling { workers_max: 8, keda_prometheus: None });
    let gpu = Some(GpuDemand { vendor: GpuVendor::Nvidia, count: 1 });
    let nvidia = DeployOptions { gpu, scaling, ..options() };
    expect_file!["../../golden/nvidia.yaml"].assert_eq(&manifests_yaml(&nvidia));
}

#[test]
fn a_server_ends_within_its_grace_period_and_none_is_missing_during_an_update() {
    let spec = typed::<Deployment>(&options(), "server-deployment").spec.unwrap();
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(serde_json::to_value(rolling).unwrap(), json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    let pod = spec.template.spec.unwrap();
    let drain = pod.containers[0].lifecycle.clone().unwrap().pre_stop.unwrap().sleep.unwrap().seconds;
    // The server ends within 35 s after the signal, which follows the pause.
    assert!(pod.termination_grace_period_seconds.unwrap() >= drain + 35);
}

#[test]
fn pods_have_no_rights_on_their_machine() {
    for file in ["server-deployment", "worker-deployment"] {
        let pod = typed::<Deployment>(&full_options(), file).spec.unwrap().template.spec.unwrap();
        let security = pod.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true), "{file}");
        assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault", "{file}");
        let container = pod.containers[0].security_context.clone().unwrap();
        assert_eq!(container.read_only_root_filesystem, Some(true), "{file}");
        assert_eq!(container.allow_privilege_escalation, Some(false), "{file}");
        assert_eq!(container.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]), "{file}");
        let mounted = pod.automount_service_account_token;
        assert_eq!(mounted, Some(file == "server-deployment"), "only servers that start Jobs have a token");
    }
}

#[test]
fn only_servers_that_start_jobs_may_do_anything_at_the_api_server() {
    let without = options();
    assert!(find(&without, "role").is_none() && find(&without, "role-binding").is_none());
    let role = find(&full_options(), "role").unwrap();
    let rule = json!([{ "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "delete"] }]);
    assert_eq!(role["rules"], rule);
    let ports = |options: &DeployOptions| find(options, "server-network-policy").unwrap()["spec"]["egress"].to_string();
    assert!(!ports(&without).contains("6443") && ports(&full_options()).contains("6443"));
}

#[test]
fn no_manifest_contains_a_secret() {
    for manifest in server_manifests(&full_options()) {
        assert_ne!(manifest.object["kind"], "Secret", "{}", manifest.file);
    }
    let notes = secret_notes(&full_options());
    for secret in ["saggar-database", "saggar-objects", "saggar-worker-key", "train-metrics-key"] {
        assert!(notes.contains(&format!("create secret generic {secret} ")), "{notes}");
    }
}

#[test]
fn scaled_workers_have_no_fixed_number() {
    let replicas = |options: &DeployOptions| typed::<Deployment>(options, "worker-deployment").spec.unwrap().replicas;
    assert_eq!(replicas(&options()), Some(1));
    assert_eq!(replicas(&full_options()), None);
    assert!(find(&DeployOptions { workers: 0, ..options() }, "worker-deployment").is_none());
}

#[test]
fn the_project_file_of_the_servers_is_valid() {
    for options in [options(), full_options()] {
        let settings = find(&options, "settings").unwrap();
        let text = settings["data"]["saggar.toml"].as_str().unwrap();
        let parsed = saggar_project::ProjectManifest::parse(text);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
}
