//! Arguments of `saggar deploy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_kubernetes::GpuVendor;

/// Write what runs servers and workers elsewhere.
#[derive(Debug, Subcommand)]
pub(crate) enum DeployCommand {
    /// Print manifests for Kubernetes: servers with a common database and bucket, and workers.
    Kubernetes(DeployKubernetesArgs),
    /// Write a Helm chart that makes the same objects.
    Helm(DeployHelmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeployKubernetesArgs {
    #[command(flatten)]
    pub(crate) place: DeployPlaceArgs,
    #[command(flatten)]
    pub(crate) installation: DeployInstallationArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeployHelmArgs {
    /// The directory to write the chart into, which must be empty or absent.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) installation: DeployInstallationArgs,
}

/// Where the objects are. A chart has the name and the namespace of its release instead.
#[derive(Debug, Args)]
pub(crate) struct DeployPlaceArgs {
    /// The name of the installation, which the names of its objects begin with.
    #[arg(long, default_value = "saggar", value_name = "NAME")]
    pub(crate) name: String,
    /// The namespace.
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeployInstallationArgs {
    /// The image of servers and workers, which `host/dist/Containerfile` builds: registry.example.com/saggar:0.1.0.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: String,
    /// Number of servers.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) replicas: u32,
    /// Memory of each server.
    #[arg(long, default_value = "4Gi", value_name = "SIZE")]
    pub(crate) memory: String,
    /// Size of the local state and cache of each server and worker.
    #[arg(long, default_value = "20Gi", value_name = "SIZE")]
    pub(crate) cache_size: String,
    /// The bucket of datasets, models, plugins and checkpoints: s3://BUCKET/PREFIX.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) objects: String,
    /// The URL of the bucket's store if it is not Amazon's: https://minio.example.com:9000.
    #[arg(long, value_name = "URL")]
    pub(crate) objects_endpoint: Option<String>,
    /// The region of the bucket.
    #[arg(long, value_name = "REGION")]
    pub(crate) objects_region: Option<String>,
    /// The secret with the bucket's credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. It can be absent if the
    /// pods have an identity of the cloud.
    #[arg(long, default_value = "saggar-objects", value_name = "NAME")]
    pub(crate) objects_secret: String,
    /// The secret with the URL of the database, at its key `url`, and the key that seals secrets of jobs, at its key
    /// `secrets-key`.
    #[arg(long, default_value = "saggar-database", value_name = "NAME")]
    pub(crate) database_secret: String,
    /// The port of the database, which the network policies allow.
    #[arg(long, default_value_t = 5432, value_name = "PORT")]
    pub(crate) database_port: u16,
    #[command(flatten)]
    pub(crate) workers: DeployWorkerArgs,
    /// Offer the servers under this host name, with an Ingress.
    #[arg(long, value_name = "HOST")]
    pub(crate) ingress: Option<String>,
    /// The class of the Ingress [default: that of the cluster].
    #[arg(long, value_name = "NAME")]
    pub(crate) ingress_class: Option<String>,
    /// The secret with the certificate of the Ingress.
    #[arg(long, value_name = "NAME")]
    pub(crate) ingress_tls: Option<String>,
    /// Add a ServiceMonitor of the Prometheus Operator.
    #[arg(long)]
    pub(crate) service_monitor: bool,
    /// Run the jobs of the default queue as Kubernetes Jobs, which the servers create.
    #[arg(long)]
    pub(crate) job_pool: bool,
    /// The queue of Kueue that admits these Jobs.
    #[arg(long, requires = "job_pool", value_name = "NAME")]
    pub(crate) kueue_queue: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeployWorkerArgs {
    /// Number of workers that are always there.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) workers: u32,
    /// Scale the workers up to this number by the jobs that wait and run, with a HorizontalPodAutoscaler, or with KEDA if
    /// --keda is given.
    #[arg(long, value_name = "N")]
    pub(crate) workers_max: Option<u32>,
    /// The URL of the Prometheus that KEDA asks: http://prometheus.monitoring.svc:9090.
    #[arg(long, requires = "workers_max", value_name = "URL")]
    pub(crate) keda: Option<String>,
    /// The GPUs of workers and of Kubernetes Jobs: nvidia or amd.
    #[arg(long, value_name = "MAKER")]
    pub(crate) gpu: Option<GpuVendor>,
    /// GPUs of each worker.
    #[arg(long, default_value_t = 1, requires = "gpu", value_name = "N")]
    pub(crate) gpu_count: u32,
    /// A group that may open the device files of the GPUs. Can be given several times.
    #[arg(long, value_name = "ID")]
    pub(crate) supplemental_group: Vec<i64>,
    /// Memory of each worker.
    #[arg(long, default_value = "8Gi", value_name = "SIZE")]
    pub(crate) worker_memory: String,
    /// Processors of each worker.
    #[arg(long, default_value = "2", value_name = "N")]
    pub(crate) worker_cpu: String,
    /// The secret with the API key of the workers, at its key `key`.
    #[arg(long, default_value = "saggar-worker-key", value_name = "NAME")]
    pub(crate) worker_key_secret: String,
}
