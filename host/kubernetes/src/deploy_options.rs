//! The options of an installation in Kubernetes, and what values they can have.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest name of an installation, in bytes. Names of its objects add up to 20 bytes, and labels have at most 63.
pub const NAME_BYTES_MAX: usize = 40;
/// Most servers or workers of an installation.
pub const REPLICAS_MAX: u32 = 1000;
/// Most GPUs of one worker.
pub const GPUS_MAX: u32 = 64;

/// The maker of the GPUs of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuVendor {
    /// `nvidia.com/gpu`.
    Nvidia,
    /// `amd.com/gpu`.
    Amd,
}

impl GpuVendor {
    /// Returns the resource that the vendor's device plugin offers.
    pub fn resource(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "nvidia.com/gpu",
            GpuVendor::Amd => "amd.com/gpu",
        }
    }

    /// Returns the label of workers with such GPUs.
    pub fn label(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "nvidia",
            GpuVendor::Amd => "amd",
        }
    }
}

/// GPUs of each worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDemand {
    /// The maker.
    pub vendor: GpuVendor,
    /// How many GPUs a worker has.
    pub count: u32,
}

/// How the number of workers follows the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerScaling {
    /// Most workers.
    pub workers_max: u32,
    /// The URL of Prometheus if KEDA scales the workers. Without it, a HorizontalPodAutoscaler reads external metrics.
    pub keda_prometheus: Option<String>,
}

/// Servers start jobs of the default queue as Kubernetes Jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPoolOptions {
    /// The queue of Kueue that admits the jobs.
    pub kueue_queue: Option<String>,
}

/// The options of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployOptions {
    /// The name of the installation, which the names of its objects begin with.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The image of servers and workers.
    pub image: String,
    /// Number of servers.
    pub replicas: u32,
    /// Number of workers that are always there.
    pub workers: u32,
    /// Scaling of workers by the queues.
    pub scaling: Option<WorkerScaling>,
    /// GPUs of each worker.
    pub gpu: Option<GpuDemand>,
    /// Groups that may open the device files of GPUs.
    pub supplemental_groups: Vec<i64>,
    /// The secret with the URL of the database, at the key `url`, and the key that seals secrets, at the key
    /// `secrets-key`.
    pub database_secret: String,
    /// The port of the database.
    pub database_port: u16,
    /// The bucket, `s3://BUCKET/PREFIX`.
    pub objects: String,
    /// The secret with the variables of the bucket's credentials.
    pub objects_secret: String,
    /// The URL of a store that is not Amazon's.
    pub objects_endpoint: Option<String>,
    /// The region of the bucket.
    pub objects_region: Option<String>,
    /// The secret with the workers' API key, at the key `key`.
    pub worker_key_secret: String,
    /// The size of the local state and cache of a pod.
    pub cache_size: String,
    /// The memory of a server.
    pub memory: String,
    /// The memory of a worker.
    pub worker_memory: String,
    /// The processors of a worker.
    pub worker_cpu: String,
    /// The host name under which an Ingress offers the servers.
    pub ingress_host: Option<String>,
    /// The class of the Ingress.
    pub ingress_class: Option<String>,
    /// The secret with the certificate of the Ingress.
    pub ingress_tls_secret: Option<String>,
    /// Whether the operator of Prometheus scrapes the servers, with the API key in the secret `NAME-metrics-key`.
    pub service_monitor: bool,
    /// Servers start Kubernetes Jobs.
    pub job_pool: Option<JobPoolOptions>,
}

impl Default for DeployOptions {
    fn default() -> DeployOptions {
        DeployOptions {
            name: "saggar".to_owned(),
            namespace: "default".to_owned(),
            image: String::new(),
            replicas: 2,
            workers: 1,
            scaling: None,
            gpu: None,
            supplemental_groups: Vec::new(),
            database_secret: "saggar-database".to_owned(),
            database_port: 5432,
            objects: String::new(),
            objects_secret: "saggar-objects".to_owned(),
            objects_endpoint: None,
            objects_region: None,
            worker_key_secret: "saggar-worker-key".to_owned(),
            cache_size: "20Gi".to_owned(),
            memory: "4Gi".to_owned(),
            worker_memory: "8Gi".to_owned(),
            worker_cpu: "2".to_owned(),
            ingress_host: None,
            ingress_class: None,
            ingress_tls_secret: None,
            service_monitor: false,
            job_pool: None,
        }
    }
}

/// A wrong option.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{option}: {value:?} {reason}")]
pub struct OptionError {
    /// The option, `--replicas`.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong, and what is expected.
    pub reason: String,
}

impl DeployOptions {
    /// Checks the values.
    ///
    /// # Errors
    /// Returns the first wrong option.
    pub fn validate(&self) -> Result<(), OptionError> {
        let names = [
            ("--namespace", Some(&self.namespace), 63),
            ("--database-secret", Some(&self.database_secret), 253),
            ("--objects-secret", Some(&self.objects_secret), 253),
            ("--worker-key-secret", Some(&self.worker_key_secret), 253),
            ("--ingress-class", self.ingress_class.as_ref(), 253),
            ("--ingress-tls", self.ingress_tls_secret.as_ref(), 253),
            ("--kueue-queue", self.job_pool.as_ref().and_then(|pool| pool.kueue_queue.as_ref()), 63),
        ];
        check_name("--name", &self.name, NAME_BYTES_MAX)?;
        for (option, name, bytes_max) in names {
            name.map_or(Ok(()), |name| check_name(option, name, bytes_max))?;
        }
        self.check_counts()?;
        self.check_addresses()?;
        for (option, size) in
            [("--cache-size", &self.cache_size), ("--memory", &self.memory), ("--worker-memory", &self.worker_memory)]
        {
            refuse_unless(is_size(size), option, size, "is not a size: expected a number with a unit, such as 4Gi")?;
        }
        let cpu = &self.worker_cpu;
        let is_cpu = cpu.strip_suffix('m').unwrap_or(cpu).parse::<u32>().is_ok_and(|count| count > 0);
        refuse_unless(is_cpu, "--worker-cpu", cpu, "is not a number of processors: expected 2 or 500m")
    }

    fn check_counts(&self) -> Result<(), OptionError> {
        let is_count = |count: u32, least: u32| (least..=REPLICAS_MAX).contains(&count);
        let (replicas, workers) = (self.replicas, self.workers);
        refuse_unless(
            is_count(replicas, 1),
            "--replicas",
            &replicas,
            "is not a number of servers: expected 1 to 1000",
        )?;
        refuse_unless(is_count(workers, 0), "--workers", &workers, "is not a number of workers: expected 0 to 1000")?;
        if let Some(scaling) = &self.scaling {
            let most = scaling.workers_max;
            let is_more = is_count(most, 1) && most >= workers;
            refuse_unless(is_more, "--workers-max", &most, "is too small or too large: expected --workers to 1000")?;
        }
        let gpus = self.gpu.map_or(1, |gpu| gpu.count);
        refuse_unless((1..=GPUS_MAX).contains(&gpus), "--gpu-count", &gpus, "is no number of GPUs: expected 1 to 64")?;
        if self.workers == 0 && self.scaling.is_none() && self.gpu.is_some() {
            let reason = "needs workers: add --workers N or --workers-max N".to_owned();
            return Err(OptionError { option: "--gpu", value: gpus.to_string(), reason });
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), OptionError> {
        let image = &self.image;
        let is_image = !image.is_empty()
            && image.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte))
            && image.as_bytes()[0].is_ascii_alphanumeric();
        refuse_unless(is_image, "--image", image, "is not an image: expected registry.example.com/saggar:0.1.0")?;
        let bucket = self.objects.strip_prefix("s3://").unwrap_or_default();
        let is_bucket = !bucket.is_empty() && bucket.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        refuse_unless(is_bucket, "--objects", &self.objects, "is not a bucket: expected s3://BUCKET/PREFIX")?;
        if let Some(url) = &self.objects_endpoint {
            refuse_unless(is_http_url(url), "--objects-endpoint", url, "is not a URL: expected https://HOST:PORT")?;
        }
        if let Some(url) = self.scaling.as_ref().and_then(|scaling| scaling.keda_prometheus.as_ref()) {
            refuse_unless(is_http_url(url), "--keda", url, "is not a URL of Prometheus: expected http://HOST:9090")?;
        }
        if let Some(host) = &self.ingress_host {
            let is_host = host.len() <= 253 && host.split('.').all(|label| is_dns_label(label, 63));
            refuse_unless(is_host, "--ingress", host, "is not a host name: expected saggar.example.com")?;
        }
        if self.ingress_host.is_none() && (self.ingress_class.is_some() || self.ingress_tls_secret.is_some()) {
            let reason = "needs an Ingress: add --ingress HOST".to_owned();
            return Err(OptionError { option: "--ingress-class, --ingress-tls", value: String::new(), reason });
        }
        Ok(())
    }

    /// Returns the port of the store of objects.
    pub(crate) fn objects_port(&self) -> u16 {
        let Some(url) = &self.objects_endpoint else { return 443 };
        let (default, rest) = match url.strip_prefix("http://") {
            Some(rest) => (80, rest),
            None => (443, url.strip_prefix("https://").unwrap_or(url)),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(default)
    }
}

fn refuse_unless(
    is_valid: bool,
    option: &'static str,
    value: &(impl fmt::Display + ?Sized),
    reason: &str,
) -> Result<(), OptionError> {
    if is_valid {
        return Ok(());
    }
    Err(OptionError { option, value: value.to_string(), reason: reason.to_owned() })
}

fn check_name(option: &'static str, name: &str, bytes_max: usize) -> Result<(), OptionError> {
    let reason = format!("is not a name: expected 1 to {bytes_max} of a-z, 0-9 and -, beginning with a letter");
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    refuse_unless(begins && is_dns_label(name, bytes_max), option, name, &reason)
}

/// Returns whether a text is a label of a DNS name (RFC 1123) and has at most `bytes_max` bytes.
pub(crate) fn is_dns_label(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_size(text: &str) -> bool {
    let number = ["Mi", "Gi", "Ti", "M", "G", "T"].iter().find_map(|unit| text.strip_suffix(unit));
    number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@'))
}

impl FromStr for GpuVendor {
    type Err = String;

    fn from_str(text: &str) -> Result<GpuVendor, String> {
        match text {
            "nvidia" => Ok(GpuVendor::Nvidia),
            "amd" => Ok(GpuVendor::Amd),
            _ => Err("expected nvidia or amd".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
