//! `saggar metrics`: a job's series, summed up or point by point.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{job_path, text};
use crate::args::Metrics;
use crate::client::{Client, segment};
use crate::exit::Failure;
use crate::output::Output;

/// A point of a series.
#[derive(Clone, Copy)]
struct Point {
    step: u64,
    /// Not a number where JSON has no number for it.
    value: f64,
    /// When, in ms since 1970.
    at_ms: u64,
}

/// What a job measured.
struct Measured {
    /// When its first attempt began, in ms since 1970.
    started_ms: u64,
    /// The series by name, their points in order of steps.
    series: BTreeMap<String, Vec<Point>>,
}

impl Measured {
    /// Every point, however many answers that takes.
    fn of(args: &Metrics, client: &Client) -> Result<Measured, Failure> {
        let wanted: Vec<String> = args.series.iter().map(|name| segment(name)).collect();
        let only = if wanted.is_empty() { String::new() } else { format!("&series={}", wanted.join(",")) };
        let mut measured = Measured { started_ms: 0, series: BTreeMap::new() };
        let mut from = Some(0);
        while let Some(step) = from {
            let answer = client.get(&format!("{}/metrics?times=1&from={step}{only}", job_path(&args.job)))?;
            measured.started_ms = answer["started_ms"].as_u64().unwrap_or(0);
            for one in answer["series"].as_array().into_iter().flatten() {
                let known = measured.series.entry(text(one, "name").to_owned()).or_default();
                // A series that was shorter than others is answered again from where they were cut.
                let last = known.last().map(|point| point.step);
                known.extend(points(one).filter(|point| last.is_none_or(|last| point.step > last)));
            }
            from = answer["next"].as_u64();
        }
        Ok(measured)
    }

    /// A line a step, with the time since the job began. A series without a value at a step has an empty place there.
    fn csv(&self, output: Output) {
        let mut lines: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
        for (column, points) in self.series.values().enumerate() {
            for Point { step, value, at_ms } in points {
                let line = lines.entry(*step).or_insert_with(|| (*at_ms, vec![String::new(); self.series.len()]));
                line.0 = line.0.max(*at_ms);
                line.1[column] = value.to_string();
            }
        }
        let names: Vec<String> = self.series.keys().map(|name| quoted(name)).collect();
        output.line(&format!("step,elapsed_time,{}", names.join(",")));
        for (step, (at_ms, values)) in &lines {
            let seconds = at_ms.saturating_sub(self.started_ms) as f64 / 1000.0;
            output.line(&format!("{step},{seconds:.3},{}", values.join(",")));
        }
    }
}

/// A name as a field of CSV (RFC 4180, section 2).
fn quoted(name: &str) -> String {
    match name.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

fn points(series: &Value) -> impl Iterator<Item = Point> {
    series["points"].as_array().into_iter().flatten().map(|point| Point {
        step: point[0].as_u64().unwrap_or(0),
        value: point[1].as_f64().unwrap_or(f64::NAN),
        at_ms: point[2].as_u64().unwrap_or(0),
    })
}

pub(crate) fn metrics(args: &Metrics, client: &Client, output: Output) -> Result<(), Failure> {
    let measured = Measured::of(args, client)?;
    if output.json {
        let point = |point: &Point| json!([point.step, point.value, point.at_ms]);
        let one = |(name, points): (&String, &Vec<Point>)| json!({ "name": name, "points": points.iter().map(point).collect::<Vec<Value>>() });
        output.json(&measured.series.iter().map(one).collect());
        return Ok(());
    }
    if args.csv {
        measured.csv(output);
        return Ok(());
    }
    let row = |(name, points): (&String, &Vec<Point>)| {
        let known = || points.iter().map(|point| point.value).filter(|value| value.is_finite());
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        vec![
            name.clone(),
            points.len().to_string(),
            points.last().map_or("-".to_owned(), |point| point.step.to_string()),
            number(points.last().map(|point| point.value)),
            number(known().reduce(f64::min)),
            number(known().reduce(f64::max)),
        ]
    };
    let rows: Vec<Vec<String>> = measured.series.iter().map(row).collect();
    output.table(&["SERIES", "POINTS", "LAST STEP", "LAST", "MIN", "MAX"], &rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_field() {
        for (name, field) in
            [("loss", "loss"), ("a,b", "\"a,b\""), ("\"a\" b", "\"\"\"a\"\" b\""), ("a\nb", "\"a\nb\"")]
        {
            assert_eq!(quoted(name), field);
        }
    }
}
