use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use saggar_plugin::{ModelPort, ModelSignature, NamedTensor, PluginError, PredictionOptions};
use saggar_store::digest::Digest;
use saggar_tensor::{DType, Descriptor, Shape};

use super::batching::queued_prediction::PredictionRequest;
use super::serving_policy::{BatchPolicy, ServingPolicy};
use super::{
    LiveVersion, ModelPredictor, ModelRouter, PredictionInputs, RequestMemoryBudget, ServingError, VersionOrigin,
};

/// A model whose output is its input.
#[derive(Debug)]
struct IdentityPredictor(ModelSignature);

impl ModelPredictor for IdentityPredictor {
    fn signature(&self) -> &ModelSignature {
        &self.0
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn predict(&self, inputs: Vec<NamedTensor>, _: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        Ok(inputs)
    }
}

fn descriptor(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::U8, Shape::new(dims).unwrap())
}

/// Returns version 1 of the model `echo`, whose batches have up to 32 items.
fn echo_version(metrics: &MetricsRegistry) -> LiveVersion {
    let item = descriptor(&[]);
    let port = ModelPort {
        name: "x".to_owned(),
        item,
        semantics: None,
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    };
    let (inputs, outputs) = (vec![port.clone()], vec![port]);
    let signature =
        ModelSignature { inputs, outputs, batch_sizes: vec![1, 32], routes: Vec::new(), handlers: Vec::new() };
    let origin = VersionOrigin {
        plugin: Digest::of(b"plugin"),
        weights: Digest::of(b"weights"),
        created_ms: 1,
        source_job: String::new(),
        metrics: BTreeMap::new(),
    };
    let batch = BatchPolicy { items_max: 32, delay_max: Duration::ZERO, slots: 2 };
    let policy = ServingPolicy { batch, capacity: 256, deadline: Duration::from_secs(30), cache_bytes: 0 };
    let predictor = Arc::new(IdentityPredictor(signature));
    LiveVersion::new("echo", 1, origin, "cpu".to_owned(), predictor, policy, metrics)
}

/// A batch drops a request whose deadline has passed before the request's task has noticed.
#[tokio::test]
async fn a_request_that_expires_before_its_batch_fails_with_deadline_queued() {
    let version = Arc::new(echo_version(&MetricsRegistry::new()));
    let tensor = NamedTensor { name: "x".to_owned(), descriptor: descriptor(&[1]), bytes: vec![7] };
    let request = PredictionRequest {
        inputs: PredictionInputs { tensors: vec![tensor], items: None, warnings: Vec::new() },
        until: Instant::now(),
        limit: Duration::from_millis(5),
        sink: None,
        _lease: Arc::new(version.try_lease().unwrap()),
        charge: RequestMemoryBudget::new(1 << 20).charge_for_client(None),
    };
    let error = version.queue().enqueue_and_wait(request).await;
    assert!(matches!(error, Err(ServingError::DeadlineQueued { .. })), "{error:?}");
}

#[tokio::test]
async fn a_request_that_cannot_meet_its_deadline_is_refused_at_once() {
    let metrics = Arc::new(MetricsRegistry::new());
    let router = Arc::new(ModelRouter::new(Arc::clone(&metrics)));
    router.add_version(echo_version(&metrics));
    router.set_default_version("echo", Some(1), &BTreeSet::from([1]), None);
    let version = router.find_live(None).unwrap();
    for _ in 0..40 {
        version.queue().latency().record(32, Duration::from_secs(1));
        version.queue().latency().record(1, Duration::from_secs(1));
    }
    let before: Vec<_> = (0..100).map(|_| version.try_lease().unwrap()).collect();
    let lease = |seconds| router.lease(None, Instant::now() + Duration::from_secs(seconds));
    let refused = router.lease(None, Instant::now() + Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(refused, ServingError::NoTimeLeft { waiting: 100, .. }), "{refused:?}");
    let message = refused.to_string();
    assert!(message.contains("has 100 predictions waiting or running, which leave no time"), "{message}");
    lease(600).await.unwrap();
    drop(before);
    lease(20).await.expect("the queue is empty");
}
