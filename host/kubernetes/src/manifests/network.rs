//! Who may connect to whom: clients to the servers' port, and pods to the database, the bucket and DNS.

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec, ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{PodComponent, SERVER_PORT, metadata, selector, worker_labels};
use crate::deploy_options::DeployOptions;

/// The ports of API servers, as pods see them: that of the service, and that behind it.
const API_SERVER_PORTS: [i32; 2] = [443, 6443];

pub(super) fn server_policy(options: &DeployOptions) -> NetworkPolicy {
    let ingress =
        NetworkPolicyIngressRule { ports: Some(vec![port("TCP", SERVER_PORT)]), ..NetworkPolicyIngressRule::default() };
    let mut egress = storage_egress(options);
    if options.job_pool.is_some() {
        egress.push(to_anywhere(API_SERVER_PORTS.map(|number| port("TCP", number)).to_vec()));
    }
    policy(options, PodComponent::Server, selector(options, PodComponent::Server), vec![ingress], egress)
}

pub(super) fn worker_policy(options: &DeployOptions) -> NetworkPolicy {
    let servers = NetworkPolicyPeer {
        pod_selector: Some(selector(options, PodComponent::Server)),
        ..NetworkPolicyPeer::default()
    };
    let mut egress = storage_egress(options);
    egress.push(NetworkPolicyEgressRule { to: Some(vec![servers]), ports: Some(vec![port("TCP", SERVER_PORT)]) });
    // Also the pods of Kubernetes Jobs, which belong to a pool and not to an installation.
    let selected = LabelSelector { match_labels: Some(worker_labels()), ..LabelSelector::default() };
    // The ranks of a job with several hosts connect to each other, on any port.
    let workers =
        || Some(vec![NetworkPolicyPeer { pod_selector: Some(selected.clone()), ..NetworkPolicyPeer::default() }]);
    egress.push(NetworkPolicyEgressRule { to: workers(), ports: None });
    let ingress = NetworkPolicyIngressRule { from: workers(), ports: None };
    policy(options, PodComponent::Worker, selected.clone(), vec![ingress], egress)
}

fn policy(
    options: &DeployOptions,
    component: PodComponent,
    pod_selector: LabelSelector,
    ingress: Vec<NetworkPolicyIngressRule>,
    egress: Vec<NetworkPolicyEgressRule>,
) -> NetworkPolicy {
    let spec = NetworkPolicySpec {
        pod_selector: Some(pod_selector),
        policy_types: Some(["Ingress", "Egress"].map(str::to_owned).to_vec()),
        ingress: Some(ingress),
        egress: Some(egress),
    };
    NetworkPolicy { metadata: metadata(options, component), spec: Some(spec) }
}

/// Returns the rules for DNS, the database and the bucket. Their addresses are not known here, so the rules are about
/// ports.
fn storage_egress(options: &DeployOptions) -> Vec<NetworkPolicyEgressRule> {
    vec![
        to_anywhere(vec![port("UDP", 53), port("TCP", 53)]),
        to_anywhere(vec![port("TCP", options.database_port.into())]),
        to_anywhere(vec![port("TCP", options.objects_port().into())]),
    ]
}

fn to_anywhere(ports: Vec<NetworkPolicyPort>) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule { ports: Some(ports), to: None }
}

fn port(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(number)),
        ..NetworkPolicyPort::default()
    }
}

pub(super) fn ingress(options: &DeployOptions, host: &str) -> Ingress {
    let service = IngressServiceBackend {
        name: options.name.clone(),
        port: Some(ServiceBackendPort { name: Some("http".to_owned()), number: None }),
    };
    let path = HTTPIngressPath {
        path: Some("/".to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    let rule = IngressRule { host: Some(host.to_owned()), http: Some(HTTPIngressRuleValue { paths: vec![path] }) };
    let tls = options
        .ingress_tls_secret
        .as_ref()
        .map(|secret| vec![IngressTLS { hosts: Some(vec![host.to_owned()]), secret_name: Some(secret.clone()) }]);
    let spec = IngressSpec {
        ingress_class_name: options.ingress_class.clone(),
        rules: Some(vec![rule]),
        tls,
        ..IngressSpec::default()
    };
    Ingress { metadata: metadata(options, PodComponent::Server), spec: Some(spec), status: None }
}
