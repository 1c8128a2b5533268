//! The table: what was measured, and each goal beside what was reached.

use crate::load::LoadResult;

/// Which side of its goal a figure should be on.
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

/// Goals, collected while sections print their figures.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    rows: Vec<GoalRow>,
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl BenchReport {
    /// A figure that has a goal.
    pub(crate) fn add_goal(&mut self, what: impl Into<String>, figure: f64, unit: &'static str, goal: BenchGoal) {
        self.rows.push(GoalRow { what: what.into(), figure, unit, goal });
    }

    /// Something that could not be measured, and why.
    pub(crate) fn add_skipped(&mut self, what: &str, why: &str) {
        println!("  skipped: {what}: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Something that makes every figure of it worthless: the benchmark goes on, and fails at its end.
    pub(crate) fn add_failure(&mut self, what: String) {
        println!("  FAILED: {what}");
        self.failures.push(what);
    }

    /// One contender's line. Its figures are of successful answers; that there are others fails the benchmark.
    pub(crate) fn print_load(&mut self, name: &str, connections: u32, load: &LoadResult) {
        let LoadResult { rate, p50, p99, cpu, failed, .. } = load;
        println!("  {name:<34} {connections:>6} {rate:>10.0} {p50:>10.0} {p99:>10.0} {cpu:>14.1} {failed:>7}");
        if *failed > 0 {
            self.add_failure(format!(
                "{name}, {connections} connections: {failed} requests without a successful answer"
            ));
        }
    }

    /// The table of goals, and what failed; whether nothing did.
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

/// The heading of [`BenchReport::print_load`].
pub(crate) fn print_load_heading() {
    println!(
        "  {:<34} {:>6} {:>10} {:>10} {:>10} {:>14} {:>7}",
        "", "conns", "req/s", "p50 us", "p99 us", "cpu us/req", "failed"
    );
}
