//! `saggar deploy`: prints manifests for Kubernetes, or writes a Helm chart.

use std::fs;
use std::path::Path;

use saggar_kubernetes::deploy_options::{GpuDemand, JobPoolOptions, WorkerScaling};
use saggar_kubernetes::{DeployOptions, helm_chart, manifest_list, manifests_yaml};
use serde::Serialize;

use crate::args::{DeployHelmArgs, DeployInstallationArgs, DeployKubernetesArgs};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Prints the manifests.
pub(crate) fn kubernetes(args: &DeployKubernetesArgs, output: CliOutput) -> Result<(), CliError> {
    let (name, namespace) = (args.place.name.clone(), args.place.namespace.clone());
    let options = DeployOptions { name, namespace, ..deploy_options(&args.installation) };
    check(&options)?;
    if output.json {
        output.print_json(&manifest_list(&options));
    } else {
        output.print_text(&manifests_yaml(&options));
    }
    Ok(())
}

/// A chart that was written.
#[derive(Serialize)]
struct WrittenChart<'a> {
    directory: &'a Path,
    files: Vec<String>,
}

/// Writes a chart.
pub(crate) fn helm(args: &DeployHelmArgs, output: CliOutput) -> Result<(), CliError> {
    let options = deploy_options(&args.installation);
    check(&options)?;
    let directory = args.directory.as_path();
    let failed = |error: std::io::Error| CliError::invalid(format!("{}: {error}", directory.display()));
    let is_used = directory.exists() && fs::read_dir(directory).map_err(failed)?.next().is_some();
    if is_used {
        let message = format!("{} is not empty", directory.display());
        let hint = "name a new directory, or remove this one first";
        return Err(CliError::new(exit::CONFLICT, "not_empty", message).with_hint(hint));
    }
    fs::create_dir_all(directory.join("templates")).map_err(failed)?;
    let files = helm_chart(&options, env!("CARGO_PKG_VERSION"));
    for file in &files {
        fs::write(directory.join(&file.path), &file.text).map_err(failed)?;
    }
    if output.json {
        let files = files.into_iter().map(|file| file.path).collect();
        output.print_json(&WrittenChart { directory, files });
        return Ok(());
    }
    output.print_line(&directory.display().to_string());
    output.print_note(&format!(
        "{} files. `helm install saggar {}` installs the chart",
        files.len(),
        directory.display()
    ));
    Ok(())
}

fn check(options: &DeployOptions) -> Result<(), CliError> {
    options.validate().map_err(|error| CliError::new(exit::USAGE, "usage", error.to_string()))
}

fn deploy_options(args: &DeployInstallationArgs) -> DeployOptions {
    let workers = &args.workers;
    let scaling =
        workers.workers_max.map(|workers_max| WorkerScaling { workers_max, keda_prometheus: workers.keda.clone() });
    DeployOptions {
        image: args.image.clone(),
        replicas: args.replicas,
        workers: workers.workers,
        scaling,
        gpu: workers.gpu.map(|vendor| GpuDemand { vendor, count: workers.gpu_count }),
        supplemental_groups: workers.supplemental_group.clone(),
        database_secret: args.database_secret.clone(),
        database_port: args.database_port,
        objects: args.objects.clone(),
        objects_secret: args.objects_secret.clone(),
        objects_endpoint: args.objects_endpoint.clone(),
        objects_region: args.objects_region.clone(),
        worker_key_secret: workers.worker_key_secret.clone(),
        cache_size: args.cache_size.clone(),
        memory: args.memory.clone(),
        worker_memory: workers.worker_memory.clone(),
        worker_cpu: workers.worker_cpu.clone(),
        ingress_host: args.ingress.clone(),
        ingress_class: args.ingress_class.clone(),
        ingress_tls_secret: args.ingress_tls.clone(),
        service_monitor: args.service_monitor,
        job_pool: args.job_pool.then(|| JobPoolOptions { kueue_queue: args.kueue_queue.clone() }),
        ..DeployOptions::default()
    }
}
