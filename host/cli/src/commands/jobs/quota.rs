//! `saggar quota`, `cost` and `queues`.

use serde_json::{Value, json};

use super::{job_path, number, text};
use crate::args::CostArgs;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

pub(crate) fn quota(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let quota = client.get("/api/v1/quota")?;
    if output.json {
        output.print_json(&quota);
        return Ok(());
    }
    let list = |key: &str| quota[key].as_array().cloned().unwrap_or_default();
    let kind = |row: &Value| vec![text(row, "kind").to_owned(), units::format_bytes(number(row, "bytes"))];
    let mut rows: Vec<Vec<String>> = list("storage").iter().map(kind).collect();
    let most = quota["storage_quota_bytes"].as_u64();
    let most = most.map_or("no limit".to_owned(), |most| format!("of {}", units::format_bytes(most)));
    let total = units::format_bytes(number(&quota, "storage_bytes"));
    rows.push(vec!["together, without cache".to_owned(), format!("{total} ({most})")]);
    output.print_table(&["STORED", "SIZE"], &rows);
    for (key, label) in [("projects", "project"), ("keys", "key")] {
        let row = |row: &Value| {
            let limit = |key: &str| row[key].as_f64().map_or("no limit".to_owned(), |most| format!("of {most}"));
            vec![
                text(row, label).to_owned(),
                format!("{:.2} ({})", row["gpu_seconds"].as_f64().unwrap_or(0.0), limit("gpu_seconds_quota")),
                format!("{:.2}", row["wall_seconds"].as_f64().unwrap_or(0.0)),
                format!("{} ({})", number(row, "running_jobs"), limit("max_running_jobs")),
            ]
        };
        let rows: Vec<Vec<String>> = list(key).iter().map(row).collect();
        if !rows.is_empty() {
            output.print_line("");
            output.print_table(&[&label.to_uppercase(), "GPU-SEC", "WALL-SEC", "RUNNING"], &rows);
        }
    }
    Ok(())
}

pub(crate) fn cost(args: &CostArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let mut rows = Vec::new();
    let (mut seconds_sum, mut cost_sum) = (0.0, 0.0);
    let mut list = Vec::new();
    for name in &args.jobs {
        let job = client.get(&job_path(name))?;
        let preemptible = job["preemptible"] == json!(true);
        let rate = args.preemptible_rate.filter(|_| preemptible).unwrap_or(args.rate);
        let seconds = job["wall_seconds"].as_f64().unwrap_or(0.0);
        let cost = seconds / 3600.0 * rate;
        (seconds_sum, cost_sum) = (seconds_sum + seconds, cost_sum + cost);
        rows.push(vec![
            text(&job, "name").to_owned(),
            units::format_duration(seconds),
            rate.to_string(),
            format!("{cost:.4}"),
        ]);
        list.push(json!({ "name": job["name"], "wall_seconds": seconds, "rate_per_hour": rate, "cost": cost }));
    }
    if output.json {
        output.print_json(&json!({ "jobs": list, "wall_seconds": seconds_sum, "cost": cost_sum }));
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
    let answer = client.get("/api/v1/queues")?;
    if output.json {
        output.print_json(&answer);
        return Ok(());
    }
    let words = |value: &Value| {
        let words: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if words.is_empty() { "-".to_owned() } else { words.join(", ") }
    };
    let queue = |queue: &Value| {
        let most = queue["max_running_jobs"].as_u64().map_or("-".to_owned(), |most| most.to_string());
        let pools = words(&queue["pools"]);
        let spill = if queue["spill"] == json!(true) { "yes" } else { "no" };
        let count = |key: &str| number(queue, key).to_string();
        vec![text(queue, "name").to_owned(), pools, spill.to_owned(), most, count("running"), count("waiting")]
    };
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let rows: Vec<Vec<String>> = list("queues").iter().map(queue).collect();
    output.print_table(&["QUEUE", "POOLS", "SPILL", "MOST", "RUNNING", "WAITING"], &rows);
    output.print_line("");
    let pool = |pool: &Value| {
        let device = pool["device"].as_str().unwrap_or("as the job asks");
        let slots = format!("{} of {}", pool["used"], pool["slots"]);
        vec![text(pool, "name").to_owned(), device.to_owned(), slots, words(&pool["jobs"])]
    };
    let rows: Vec<Vec<String>> = list("pools").iter().map(pool).collect();
    output.print_table(&["POOL", "DEVICE", "SLOTS", "JOBS"], &rows);
    Ok(())
}
