//! `saggar bench diff`: compares two saved results, figure by figure, with confidence intervals.

use std::path::Path;

use serde::Serialize;

use super::confidence::{self, CONFIDENCE, RatioEstimate, SAMPLES_MIN, estimate_ratio};
use super::saved_result::{BetterDirection, MeasuredSeries, SavedResult};
use crate::args::BenchDiffArgs;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// How a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ChangeVerdict {
    /// The whole interval is worse by more than the threshold.
    Regression,
    /// The whole interval is worse than before.
    Worse,
    /// The interval contains no change.
    Unchanged,
    /// The whole interval is better than before.
    Better,
    /// There are too few samples for an interval.
    NotJudged,
}

impl ChangeVerdict {
    /// Judges a ratio of after to before.
    fn judge(estimate: &RatioEstimate, better: BetterDirection, threshold: f64) -> ChangeVerdict {
        let Some([low, high]) = estimate.interval else { return ChangeVerdict::NotJudged };
        match better {
            BetterDirection::Higher if high < 1.0 - threshold => ChangeVerdict::Regression,
            BetterDirection::Lower if low > 1.0 + threshold => ChangeVerdict::Regression,
            _ if low <= 1.0 && high >= 1.0 => ChangeVerdict::Unchanged,
            BetterDirection::Higher if high < 1.0 => ChangeVerdict::Worse,
            BetterDirection::Lower if low > 1.0 => ChangeVerdict::Worse,
            BetterDirection::Higher | BetterDirection::Lower => ChangeVerdict::Better,
        }
    }

    fn label(self) -> &'static str {
        match self {
            ChangeVerdict::Regression => "REGRESSION",
            ChangeVerdict::Worse => "worse",
            ChangeVerdict::Unchanged => "unchanged",
            ChangeVerdict::Better => "better",
            ChangeVerdict::NotJudged => "not judged",
        }
    }
}

/// The comparison of one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct FigureChange {
    group: String,
    name: String,
    better: BetterDirection,
    before: f64,
    after: f64,
    ratio: f64,
    interval: Option<[f64; 2]>,
    verdict: ChangeVerdict,
}

/// The comparison of two results.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct BenchComparison {
    kind: super::saved_result::BenchKind,
    method: &'static str,
    confidence: f64,
    threshold: f64,
    seed: u64,
    figures: Vec<FigureChange>,
    regressions: usize,
    /// What else differs between the two measurements.
    notes: Vec<String>,
}

pub(super) fn diff(args: &BenchDiffArgs, output: CliOutput) -> Result<i32, CliError> {
    let [before, after] = [SavedResult::load(&args.before)?, SavedResult::load(&args.after)?];
    check_comparable((&args.before, &before), (&args.after, &after))?;
    let comparison = compare(&before, &after, args.threshold, args.seed);
    if output.json {
        output.print_json(&comparison);
    } else {
        comparison.print(output);
    }
    Ok(if comparison.regressions > 0 { exit::REGRESSION } else { 0 })
}

/// Refuses results of different measurements.
fn check_comparable(before: (&Path, &SavedResult), after: (&Path, &SavedResult)) -> Result<(), CliError> {
    let refuse = |what: &str, [first, second]: [String; 2]| {
        let (one, other) = (before.0.display(), after.0.display());
        let message = format!("{one} and {other} cannot be compared: different {what}: {first} and {second}");
        Err(CliError::new(exit::INVALID, "not_comparable", message)
            .with_hint(format!("measure both alike: repeat `{}` with the same arguments", before.1.kind.command())))
    };
    let (first, second) = (before.1, after.1);
    if first.kind != second.kind {
        return refuse("commands", [first, second].map(|result| format!("`{}`", result.kind.command())));
    }
    for (name, condition) in &first.conditions {
        let other = second.conditions.get(name);
        if other != Some(condition) {
            return refuse(name, [condition.clone(), other.map_or("none", String::as_str).to_owned()]);
        }
    }
    let names = [first, second].map(|result| {
        let mut names: Vec<String> = result.series.iter().map(|it| format!("{} {}", it.group, it.name)).collect();
        names.sort_unstable();
        names
    });
    if names[0] != names[1] {
        let groups = [first, second].map(|result| {
            let mut groups: Vec<&str> = result.series.iter().map(|it| it.group.as_str()).collect();
            groups.dedup();
            groups.join(", ")
        });
        return refuse("figures", groups);
    }
    Ok(())
}

fn compare(before: &SavedResult, after: &SavedResult, threshold: f64, seed: u64) -> BenchComparison {
    let change = |series: &MeasuredSeries| {
        let is_same = |other: &&MeasuredSeries| other.group == series.group && other.name == series.name;
        let other = after.series.iter().find(is_same)?;
        let estimate = estimate_ratio(&series.samples, &other.samples, seed)?;
        Some(FigureChange {
            group: series.group.clone(),
            name: series.name.clone(),
            better: series.better,
            before: confidence::mean(&series.samples),
            after: confidence::mean(&other.samples),
            ratio: estimate.ratio,
            interval: estimate.interval,
            verdict: ChangeVerdict::judge(&estimate, series.better, threshold),
        })
    };
    let figures: Vec<FigureChange> = before.series.iter().filter_map(change).collect();
    let regressions = figures.iter().filter(|it| it.verdict == ChangeVerdict::Regression).count();
    BenchComparison {
        kind: before.kind,
        method: confidence::METHOD,
        confidence: CONFIDENCE,
        threshold,
        seed,
        notes: difference_notes(before, after, figures.len()),
        figures,
        regressions,
    }
}

fn difference_notes(before: &SavedResult, after: &SavedResult, compared: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if before.machine != after.machine {
        let [one, other] = [before, after]
            .map(|it| format!("{}, {} cores, {}", it.machine.processor, it.machine.cores, it.machine.system));
        notes.push(format!("the machines differ, so the ratios are not those of the program alone: {one}; {other}"));
    }
    if before.program != after.program {
        notes.push(format!("different versions of the program: {} and {}", before.program, after.program));
    }
    for (name, value) in &before.properties {
        let other = after.properties.get(name).map_or("none", String::as_str);
        if other != value {
            notes.push(format!("the {name} differ: {value} and {other}"));
        }
    }
    if compared < before.series.len() {
        let left_out = before.series.len() - compared;
        notes.push(format!(
            "{left_out} figures were not measured in one of the results, for example because every request failed"
        ));
    }
    notes
}

impl BenchComparison {
    fn print(&self, output: CliOutput) {
        let row = |it: &FigureChange| {
            let interval = it.interval.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"));
            vec![
                it.group.clone(),
                it.name.clone(),
                format_figure(it.before),
                format_figure(it.after),
                format!("{:.3}", it.ratio),
                interval,
                it.verdict.label().to_owned(),
            ]
        };
        let interval = format!("{:.0}% INTERVAL", self.confidence * 100.0);
        let headers = ["MEASURED", "FIGURE", "BEFORE", "AFTER", "AFTER/BEFORE", &interval, "CHANGE"];
        output.print_table(&headers, &self.figures.iter().map(row).collect::<Vec<_>>());
        output.print_note(&format!("interval: {}, seed {}", self.method, self.seed));
        if self.figures.iter().any(|it| it.verdict == ChangeVerdict::NotJudged) {
            output.print_note(&format!("figures with fewer than {SAMPLES_MIN} samples are not judged"));
        }
        self.notes.iter().for_each(|note| output.print_note(&format!("note: {note}")));
        if self.regressions > 0 {
            let percent = self.threshold * 100.0;
            output.print_note(&format!("{} figures are worse by more than {percent}%", self.regressions));
        }
    }
}

/// Formats a figure with four significant digits.
fn format_figure(value: f64) -> String {
    let digits = if value > 0.0 { 3 - value.log10().floor() as i32 } else { 3 };
    format!("{value:.*}", usize::try_from(digits.clamp(0, 9)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::saved_result::BenchKind;
    use super::*;

    fn result(name: &str, better: BetterDirection, mean: f64) -> SavedResult {
        let samples = (0..20).map(|index| mean * (1.0 + 0.02 * (f64::from(index * 7 % 20) / 10.0 - 1.0))).collect();
        let series = MeasuredSeries { group: "8 connections".to_owned(), name: name.to_owned(), better, samples };
        SavedResult::new(BenchKind::Serve, vec![series], Value::Null).with_condition("models", "digits")
    }

    fn verdict(better: BetterDirection, factor: f64) -> ChangeVerdict {
        let (before, after) = (result("figure", better, 100.0), result("figure", better, 100.0 * factor));
        compare(&before, &after, 0.05, 1).figures[0].verdict
    }

    #[test]
    fn a_change_is_judged_by_its_interval_and_its_direction() {
        use BetterDirection::{Higher, Lower};
        for (factor, higher, lower) in [
            (1.0, ChangeVerdict::Unchanged, ChangeVerdict::Unchanged),
            (1.03, ChangeVerdict::Better, ChangeVerdict::Worse),
            (0.97, ChangeVerdict::Worse, ChangeVerdict::Better),
            (0.90, ChangeVerdict::Regression, ChangeVerdict::Better),
            (1.10, ChangeVerdict::Better, ChangeVerdict::Regression),
            // The ratio is beyond the threshold, and the interval is not.
            (1.051, ChangeVerdict::Better, ChangeVerdict::Worse),
        ] {
            assert_eq!((verdict(Higher, factor), verdict(Lower, factor)), (higher, lower), "{factor}");
        }
    }

    #[test]
    fn results_of_different_measurements_are_refused() {
        let before = result("requests/s", BetterDirection::Higher, 1.0);
        let refused = |after: &SavedResult| {
            check_comparable((Path::new("a"), &before), (Path::new("b"), after)).unwrap_err().message
        };
        assert!(check_comparable((Path::new("a"), &before), (Path::new("b"), &before)).is_ok());
        let other_model = before.clone().with_condition("models", "echo");
        assert!(refused(&other_model).contains("a and b cannot be compared: different models: digits and echo"));
        let mut other_group = before.clone();
        other_group.series[0].group = "64 connections".to_owned();
        assert!(refused(&other_group).contains("8 connections and 64 connections"), "{}", refused(&other_group));
        let other_kind = SavedResult { kind: BenchKind::Infer, ..before.clone() };
        assert!(refused(&other_kind).contains("`saggar bench serve` and `saggar bench infer`"));
    }

    #[test]
    fn differences_of_machine_version_and_model_are_noted() {
        let before = result("requests/s", BetterDirection::Higher, 1.0).with_property("model versions", "digits@1");
        let mut after = before.clone().with_property("model versions", "digits@2");
        after.machine.cores += 1;
        after.program = "9.9.9".to_owned();
        after.series[0].samples.clear();
        let comparison = compare(&before, &after, 0.05, 1);
        assert!(comparison.figures.is_empty() && comparison.notes.len() == 4, "{:?}", comparison.notes);
        assert!(comparison.notes.iter().any(|note| note == "the model versions differ: digits@1 and digits@2"));
    }

    #[test]
    fn figures_have_four_significant_digits() {
        assert_eq!(
            [12_345.6, 12.3456, 0.000_123_456, 0.0].map(format_figure),
            ["12346", "12.35", "0.0001235", "0.000"]
        );
    }
}
