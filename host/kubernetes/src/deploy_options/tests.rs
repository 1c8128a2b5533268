use super::*;

fn valid() -> DeployOptions {
    let (image, objects) = ("registry.example.com/saggar:0.1.0".to_owned(), "s3://models/saggar".to_owned());
    DeployOptions { image, objects, ..DeployOptions::default() }
}

#[test]
fn wrong_values_are_refused_with_the_option_and_what_is_expected() {
    let check = |change: &dyn Fn(&mut DeployOptions), option: &str, expected: &str| {
        let mut options = valid();
        change(&mut options);
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(option) && error.contains(expected), "{error}");
    };
    valid().validate().unwrap();
    check(&|it| it.name = "Saggar".into(), "--name", "a-z");
    check(&|it| it.name = "1st".into(), "--name", "beginning with a letter");
    check(&|it| it.name = "x".repeat(41), "--name", "1 to 40");
    check(&|it| it.namespace = "a_b".into(), "--namespace", "a-z");
    check(&|it| it.image = String::new(), "--image", "registry.example.com/saggar");
    check(&|it| it.image = "a b".into(), "--image", "registry.example.com/saggar");
    check(&|it| it.replicas = 0, "--replicas", "1 to 1000");
    check(&|it| it.workers = 1001, "--workers", "0 to 1000");
    check(&|it| it.objects = "models".into(), "--objects", "s3://BUCKET/PREFIX");
    check(&|it| it.objects = "s3://key:secret@models".into(), "--objects", "s3://BUCKET/PREFIX");
    check(&|it| it.objects_endpoint = Some("minio:9000".into()), "--objects-endpoint", "https://HOST:PORT");
    check(&|it| it.memory = "4".into(), "--memory", "4Gi");
    check(&|it| it.worker_memory = "0Gi".into(), "--worker-memory", "4Gi");
    check(&|it| it.worker_cpu = "two".into(), "--worker-cpu", "500m");
    check(&|it| it.ingress_host = Some("a..b".into()), "--ingress", "saggar.example.com");
    check(&|it| it.ingress_class = Some("nginx".into()), "--ingress-class", "--ingress HOST");
    check(&|it| it.gpu = Some(GpuDemand { vendor: GpuVendor::Nvidia, count: 0 }), "--gpu-count", "1 to 64");
    let few = WorkerScaling { workers_max: 1, keda_prometheus: None };
    check(
        &|it| {
            it.workers = 2;
            it.scaling = Some(few.clone());
        },
        "--workers-max",
        "expected --workers to 1000",
    );
    let wrong = WorkerScaling { workers_max: 4, keda_prometheus: Some("prometheus".into()) };
    check(&|it| it.scaling = Some(wrong.clone()), "--keda", "http://HOST:9090");
    assert_eq!("intel".parse::<GpuVendor>(), Err("expected nvidia or amd".to_owned()));
}

#[test]
fn the_port_of_the_store_is_that_of_its_url() {
    let port = |endpoint: Option<&str>| {
        DeployOptions { objects_endpoint: endpoint.map(str::to_owned), ..valid() }.objects_port()
    };
    assert_eq!(port(None), 443);
    assert_eq!(port(Some("http://minio.store.svc:9000")), 9000);
    assert_eq!(port(Some("http://minio/path:1")), 80);
    assert_eq!(port(Some("https://minio")), 443);
}
