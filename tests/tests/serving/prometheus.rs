//! The dashboard and the alerts of `examples/prometheus` use existing metrics and labels, and the alerts fire when they
//! should.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use saggar_metrics::{FAMILIES, MetricDefinition};
use saggar_tests::root;
use serde_json::Value;

/// A query, with the labels that its legend or annotations use.
#[derive(Debug)]
struct PromQuery {
    text: String,
    used_labels: Vec<String>,
}

fn folder() -> PathBuf {
    root().join("examples/prometheus")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the words of a text, each with the text after it.
fn words(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |length| start + length);
        found.push((&rest[start..end], &rest[end..]));
        rest = &rest[end..];
    }
    found
}

/// Returns the family of a series' name, and whether it is the buckets of a histogram.
fn family(name: &str) -> Option<(&'static MetricDefinition, bool)> {
    let named = |name: &str| FAMILIES.iter().find(|family| family.name == name);
    let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).and_then(named);
    match part.filter(|family| family.kind.starts_with("Histogram")) {
        Some(family) => Some((family, name.ends_with("_bucket"))),
        None => named(name).filter(|family| !family.kind.starts_with("Histogram")).map(|family| (family, false)),
    }
}

/// Returns the label names between braces: `a="x,}", b=~"y"` gives `a`, `b`.
fn label_matchers(after: &str) -> Vec<&str> {
    let Some(inner) = after.strip_prefix('{') else { return Vec::new() };
    let mut labels = Vec::new();
    // Text in quotes is not a label.
    for (at, part) in inner.split('"').enumerate() {
        if at % 2 == 0 {
            let (part, ends) = part.split_once('}').map_or((part, false), |(part, _)| (part, true));
            labels.extend(words(part).into_iter().map(|(word, _)| word));
            if ends {
                break;
            }
        }
    }
    labels
}

/// Returns the labels after `by`, `on` and similar keywords.
fn grouping_labels(query: &str) -> Vec<&str> {
    let lists = words(query).into_iter().filter(|(word, _)| ["by", "without", "on", "group_left"].contains(word));
    let inner = lists.filter_map(|(_, after)| after.trim_start().strip_prefix('(')?.split(')').next());
    inner.flat_map(|inner| words(inner).into_iter().map(|(word, _)| word)).collect()
}

/// Checks a query against the table of metrics, and returns the families it reads.
fn check(query: &PromQuery) -> Vec<&'static str> {
    let mut known: BTreeSet<&str> = ["instance"].into();
    let mut read = Vec::new();
    for (word, after) in words(&query.text).into_iter().filter(|(word, _)| word.starts_with("saggar_")) {
        let (family, buckets) = family(word).unwrap_or_else(|| panic!("{word} is no series of a family: {query:?}"));
        let mut own: BTreeSet<&str> = family.labels.iter().copied().chain(["instance"]).collect();
        own.extend(buckets.then_some("le"));
        for label in label_matchers(after) {
            assert!(own.contains(label), "{word} has no label {label}: {query:?}");
        }
        known.extend(own);
        read.push(family.name);
    }
    let grouped = grouping_labels(&query.text);
    grouped.iter().for_each(|label| assert!(known.contains(label), "nothing has the label {label}: {query:?}"));
    let aggregates = query.text.contains(" by (");
    for label in &query.used_labels {
        let there = if aggregates { grouped.contains(&&**label) } else { known.contains(&**label) };
        assert!(there, "{label} is shown, but is not there: {query:?}");
    }
    read
}

/// Returns the labels in `{{name}}` or `{{ $labels.name }}`.
fn placeholders(text: &str) -> Vec<String> {
    let inner = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).map(str::trim);
    let label = |inner: &str| match inner.strip_prefix('$') {
        Some(variable) => variable.strip_prefix("labels.").map(str::to_owned),
        None => Some(inner.to_owned()),
    };
    inner.filter_map(label).collect()
}

fn dashboard_queries() -> Vec<PromQuery> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let used_labels = placeholders(target["legendFormat"].as_str().unwrap());
            let text = target["expr"].as_str().unwrap();
            let text = text.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$model", ".*");
            assert!(!text.contains('$'), "a variable that the dashboard does not have: {text}");
            queries.push(PromQuery { text, used_labels });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let definition = variable["query"].as_str().unwrap().replace("$instance", ".*");
        if let Some((text, label)) = definition.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(", ")) {
            queries
                .push(PromQuery { text: text.to_owned(), used_labels: vec![label.trim_end_matches(')').to_owned()] });
        }
    }
    queries
}

/// Returns one query per rule: the text after `expr:` or, if that is `|`, the indented lines after it.
fn alert_queries() -> Vec<PromQuery> {
    let rules = read("alerts.yml");
    let indent = |line: &str| line.len() - line.trim_start().len();
    let query = |rule: &str| {
        let mut lines = rule.lines().skip_while(|line| !line.trim_start().starts_with("expr:"));
        let first = lines.next().unwrap();
        let depth = indent(first);
        let text = match first.trim_start().trim_start_matches("expr:").trim() {
            "|" => lines.take_while(|line| indent(line) > depth).collect::<Vec<_>>().join("\n"),
            text => text.to_owned(),
        };
        PromQuery { text, used_labels: placeholders(rule) }
    };
    rules.split("- alert:").skip(1).map(query).collect()
}

#[test]
fn every_query_names_existing_metrics_and_labels() {
    let (dashboard, alerts) = (dashboard_queries(), alert_queries());
    let read: BTreeSet<&str> = dashboard.iter().chain(&alerts).flat_map(check).collect();
    assert!(dashboard.len() > 30 && alerts.len() > 10, "{} and {} queries", dashboard.len(), alerts.len());
    assert!(read.len() > 30, "{read:?}");
}

#[test]
fn the_query_check_finds_unknown_metrics_and_labels() {
    let query = |text: &str, used_labels: &[&str]| PromQuery {
        text: text.to_owned(),
        used_labels: used_labels.iter().map(|&label| label.to_owned()).collect(),
    };
    let fails = |query: &PromQuery| std::panic::catch_unwind(|| check(query)).is_err();
    assert_eq!(
        check(&query(r#"sum by (state) (saggar_jobs{state!="a,b}",instance="c"})"#, &["state"])),
        ["saggar_jobs"]
    );
    for (text, used_labels) in [
        ("saggar_no_such_metric", None),
        ("saggar_predict_seconds", None),
        ("saggar_jobs_bucket", None),
        (r#"saggar_jobs{model="x"}"#, None),
        (r#"rate(saggar_predict_seconds_sum{le="1"}[5m])"#, None),
        ("sum by (model) (saggar_jobs)", None),
        ("sum by (instance) (saggar_jobs)", Some("state")),
        ("saggar_jobs", Some("model")),
    ] {
        let wrong = query(text, used_labels.as_slice());
        assert!(fails(&wrong), "{wrong:?} is let through");
    }
}

/// Runs promtool and expects success. Returns `false` if it is not installed.
fn promtool(arguments: &[&str]) -> bool {
    let Ok(output) = Command::new("promtool").args(arguments).current_dir(folder()).output() else { return false };
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    true
}

#[test]
fn alerts_fire_only_under_their_conditions() {
    if !promtool(&["check", "config", "prometheus.yml"]) {
        println!("SKIP: promtool is not here");
        return;
    }
    promtool(&["test", "rules", "alerts.test.yml"]);
}

/// Prometheus parses the dashboard's queries as rules.
#[test]
fn the_dashboards_queries_are_well_formed() {
    let rules: Vec<Value> = dashboard_queries()
        .iter()
        .enumerate()
        .map(|(at, query)| serde_json::json!({ "record": format!("panel:{at}"), "expr": query.text }))
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    // JSON is YAML.
    let groups = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(file.path(), groups.to_string()).unwrap();
    if !promtool(&["check", "rules", file.path().to_str().unwrap()]) {
        println!("SKIP: promtool is not here");
    }
}
