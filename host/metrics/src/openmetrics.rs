//! Renders OpenMetrics 1.0 text. It is the Prometheus text format with two differences: families of counters are named
//! without `_total`, and a final mark shows the scraper that the text is complete.

use std::fmt::{self, Write};

use prometheus::proto::{LabelPair, MetricFamily, MetricType};

/// Renders the gathered families.
pub(crate) fn render_text(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    families.iter().try_for_each(|family| write_family(&mut out, family)).expect("writing to a string does not fail");
    out.push_str("# EOF\n");
    out
}

fn write_family(out: &mut String, family: &MetricFamily) -> fmt::Result {
    let name = family.name();
    let (kind, base) = match family.get_field_type() {
        MetricType::COUNTER => ("counter", name.strip_suffix("_total").unwrap_or(name)),
        MetricType::GAUGE => ("gauge", name),
        MetricType::HISTOGRAM => ("histogram", name),
        // The table has no families of these kinds.
        MetricType::SUMMARY | MetricType::UNTYPED => return Ok(()),
    };
    writeln!(out, "# TYPE {base} {kind}")?;
    writeln!(out, "# HELP {base} {}", escape_label(family.help()))?;
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match family.get_field_type() {
            MetricType::COUNTER => {
                write_sample(out, &format!("{base}_total"), labels, None, metric.get_counter().get_value())?
            }
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                let count = histogram.get_sample_count() as f64;
                let buckets = histogram.get_bucket().iter();
                let finite = buckets.filter(|bucket| bucket.upper_bound().is_finite());
                let bounds = finite.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count() as f64));
                for (bound, cumulative) in bounds.chain([(f64::INFINITY, count)]) {
                    write_sample(out, &format!("{base}_bucket"), labels, Some(bound), cumulative)?;
                }
                write_sample(out, &format!("{base}_sum"), labels, None, histogram.get_sample_sum())?;
                write_sample(out, &format!("{base}_count"), labels, None, count)?;
            }
            _ => write_sample(out, base, labels, None, metric.get_gauge().get_value())?,
        }
    }
    Ok(())
}

fn write_sample(out: &mut String, name: &str, labels: &[LabelPair], bound: Option<f64>, value: f64) -> fmt::Result {
    out.push_str(name);
    let pairs = labels.iter().map(|label| (label.name(), escape_label(label.value())));
    let bound_pair = bound.map(|bound| ("le", format_number(bound, true)));
    for (at, (label, text)) in pairs.chain(bound_pair).enumerate() {
        write!(out, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' })?;
    }
    let close = if labels.is_empty() && bound.is_none() { "" } else { "}" };
    writeln!(out, "{close} {}", format_number(value, false))
}

/// Formats a number. Bucket bounds always have a decimal point, so that a bound has the same text everywhere.
fn format_number(value: f64, is_bound: bool) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ if is_bound => format!("{value:?}"),
        _ => value.to_string(),
    }
}

fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

    use super::*;

    #[test]
    fn counters_gauges_and_histograms_are_written() {
        let registry = Registry::new();
        let asked = IntCounterVec::new(Opts::new("asked_total", "Asked \"so\"."), &["by"]).unwrap();
        let open = IntGauge::new("open", "Open now.").unwrap();
        let options = HistogramOpts::new("time_seconds", "Time.").buckets(vec![1e-6, 1.0]);
        let time = HistogramVec::new(options, &[]).unwrap();
        registry.register(Box::new(asked.clone())).unwrap();
        registry.register(Box::new(open.clone())).unwrap();
        registry.register(Box::new(time.clone())).unwrap();
        asked.with_label_values(&["a\"\\\n"]).inc();
        open.set(-2);
        time.with_label_values::<&str>(&[]).observe(0.5);
        let expected = r#"# TYPE asked counter
# HELP asked Asked \"so\".
asked_total{by="a\"\\\n"} 1
# TYPE open gauge
# HELP open Open now.
open -2
# TYPE time_seconds histogram
# HELP time_seconds Time.
time_seconds_bucket{le="1e-6"} 0
time_seconds_bucket{le="1.0"} 1
time_seconds_bucket{le="+Inf"} 1
time_seconds_sum 0.5
time_seconds_count 1
# EOF
"#;
        assert_eq!(render_text(&registry.gather()), expected);
    }
}
