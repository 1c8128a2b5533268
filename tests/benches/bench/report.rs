//! The result table: the measured figures, each beside its goal.

use crate::load::LoadResult;

/// The side of its goal on which a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BenchGoal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug)]
struct GoalRow {
    what: String,
    figure: f64,
    unit: &'static str,
    goal: BenchGoal,
}

/// The goals, collected while sections print their figures.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    rows: Vec<GoalRow>,
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl BenchReport {
    /// Adds a figure that has a goal.
    pub(crate) fn add_goal(&mut self, what: impl Into<String>, figure: f64, unit: &'static str, goal: BenchGoal) {
        self.rows.push(GoalRow { what: what.into(), figure, unit, goal });
    }

    /// Adds something that could not be measured, and why.
    pub(crate) fn add_skipped(&mut self, what: &str, why: &str) {
        println!("  skipped: {what}: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Adds an error that invalidates the figures: the benchmark continues, and fails at its end.
    pub(crate) fn add_failure(&mut self, what: String) {
        println!("  FAILED: {what}");
        self.failures.push(what);
    }

    /// Prints one contender's line. Its figures are of successful responses; any other response fails the benchmark.
    pub(crate) fn print_load(&mut self, name: &str, connections: u32, load: &LoadResult) {
        let LoadResult { rate, p50, p99, cpu, failed, .. } = load;
        println!("  {name:<34} {connections:>6} {rate:>10.0} {p50:>10.0} {p99:>10.0} {cpu:>14.1} {failed:>7}");
        if *failed > 0 {
            self.add_failure(format!(
                "{name}, {connections} connections: {failed} requests without a successful answer"
            ));
        }
    }

    /// Prints the table of goals and the failures. Returns whether there were no failures.
    pub(crate) fn print_goals(&self) -> bool {
        println!("\n{:<88} {:>12}  {:<18} met", "goal", "measured", "wanted");
        for GoalRow { what, figure, unit, goal } in &self.rows {
            let (wanted, met) = match goal {
                BenchGoal::AtLeast(least) => (format!("at least {least}{unit}"), figure >= least),
                BenchGoal::AtMost(most) => (format!("at most {most}{unit}"), figure <= most),
            };
            println!(
                "{what:<88} {:>12}  {wanted:<18} {}",
                format!("{figure:.2}{unit}"),
                if met { "yes" } else { "NO" }
            );
        }
        self.skipped.iter().for_each(|line| println!("not measured: {line}"));
        self.failures.iter().for_each(|line| println!("FAILED: {line}"));
        self.failures.is_empty()
    }
}

/// Prints the heading of [`BenchReport::print_load`].
pub(crate) fn print_load_heading() {
    println!(
        "  {:<34} {:>6} {:>10} {:>10} {:>10} {:>14} {:>7}",
        "", "conns", "req/s", "p50 us", "p99 us", "cpu us/req", "failed"
    );
}
