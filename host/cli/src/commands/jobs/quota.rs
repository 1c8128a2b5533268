//! `saggar quota`, `cost` and `queues`.

use saggar_rest::jobs::JobDocument;
use saggar_rest::queues::{PoolDocument, QueueDocument, QueueListDocument};
use saggar_rest::quota::{QuotaDocument, StorageDocument, UsageDocument};
use serde::Serialize;

use crate::args::CostArgs;
use crate::client::ApiClient;
use crate::commands::job_follow::job_path;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

pub(crate) fn quota(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let quota: QuotaDocument = client.get("/api/v1/quota")?;
    if output.json {
        output.print_json(&quota);
        return Ok(());
    }
    let kind = |row: &StorageDocument| vec![row.kind.clone(), units::format_bytes(row.bytes)];
    let mut rows: Vec<Vec<String>> = quota.storage.iter().map(kind).collect();
    let most = quota.storage_quota_bytes;
    let most = most.map_or("no limit".to_owned(), |most| format!("of {}", units::format_bytes(most)));
    let total = units::format_bytes(quota.storage_bytes);
    rows.push(vec!["together, without cache".to_owned(), format!("{total} ({most})")]);
    output.print_table(&["STORED", "SIZE"], &rows);
    for (label, usages) in [("PROJECT", &quota.projects), ("KEY", &quota.keys)] {
        let rows: Vec<Vec<String>> = usages.iter().map(usage_row).collect();
        if !rows.is_empty() {
            output.print_line("");
            output.print_table(&[label, "GPU-SEC", "WALL-SEC", "RUNNING"], &rows);
        }
    }
    Ok(())
}

fn usage_row(usage: &UsageDocument) -> Vec<String> {
    let limit = |most: Option<String>| most.map_or("no limit".to_owned(), |most| format!("of {most}"));
    vec![
        usage.project.clone().or_else(|| usage.key.clone()).unwrap_or_default(),
        format!("{:.2} ({})", usage.gpu_seconds, limit(usage.gpu_seconds_quota.map(|most| most.to_string()))),
        format!("{:.2}", usage.wall_seconds),
        format!("{} ({})", usage.running_jobs, limit(usage.max_running_jobs.map(|most| most.to_string()))),
    ]
}

/// The cost of jobs as JSON.
#[derive(Serialize)]
struct TotalCost {
    jobs: Vec<JobCost>,
    wall_seconds: f64,
    cost: f64,
}

/// The cost of a job as JSON.
#[derive(Serialize)]
struct JobCost {
    name: String,
    wall_seconds: f64,
    rate_per_hour: f64,
    cost: f64,
}

pub(crate) fn cost(args: &CostArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let mut rows = Vec::new();
    let (mut seconds_sum, mut cost_sum) = (0.0, 0.0);
    let mut list = Vec::new();
    for name in &args.jobs {
        let job: JobDocument = client.get(&job_path(name))?;
        let rate = args.preemptible_rate.filter(|_| job.preemptible).unwrap_or(args.rate);
        let seconds = job.wall_seconds;
        let cost = seconds / 3600.0 * rate;
        (seconds_sum, cost_sum) = (seconds_sum + seconds, cost_sum + cost);
        rows.push(vec![job.name.clone(), units::format_duration(seconds), rate.to_string(), format!("{cost:.4}")]);
        list.push(JobCost { name: job.name, wall_seconds: seconds, rate_per_hour: rate, cost });
    }
    if output.json {
        output.print_json(&TotalCost { jobs: list, wall_seconds: seconds_sum, cost: cost_sum });
        return Ok(());
    }
    rows.push(vec![
        "together".to_owned(),
        units::format_duration(seconds_sum),
        String::new(),
        format!("{cost_sum:.4}"),
    ]);
    output.print_table(&["JOB", "RAN", "RATE/H", "COST"], &rows);
    Ok(())
}

pub(crate) fn queues(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let listed: QueueListDocument = client.get("/api/v1/queues")?;
    if output.json {
        output.print_json(&listed);
        return Ok(());
    }
    let words = |words: &[String]| if words.is_empty() { "-".to_owned() } else { words.join(", ") };
    let queue = |queue: &QueueDocument| {
        vec![
            queue.name.clone(),
            words(&queue.pools),
            if queue.spill { "yes" } else { "no" }.to_owned(),
            queue.max_running_jobs.map_or("-".to_owned(), |most| most.to_string()),
            queue.running.to_string(),
            queue.waiting.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.queues.iter().map(queue).collect();
    output.print_table(&["QUEUE", "POOLS", "SPILL", "MOST", "RUNNING", "WAITING"], &rows);
    output.print_line("");
    let pool = |pool: &PoolDocument| {
        let device = pool.device.as_deref().unwrap_or("as the job asks");
        // With a decimal point also for whole numbers, as in JSON.
        let slots = format!("{:?} of {:?}", pool.used, pool.slots);
        vec![pool.name.clone(), device.to_owned(), slots, words(&pool.jobs)]
    };
    let rows: Vec<Vec<String>> = listed.pools.iter().map(pool).collect();
    output.print_table(&["POOL", "DEVICE", "SLOTS", "JOBS"], &rows);
    Ok(())
}
