//! The table: figures of both sides, their ratio, and whether the goal is met.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::path::Path;

use crate::interleaved_runs::Timing;
use crate::other_processes::OTHERS_MAX;

const EXPLANATION: &str = "Figures are medians, with the best in brackets. Ratios are saggar's figure divided by the \
peer's. Goals apply to medians, and to the fastest of a benchmark's peers that count. The last column is the share of \
the cores that other processes took; if it is large, a goal's result has a question mark.";

/// Entry of a comparison that failed, in the column of met goals.
const NO_FIGURE: &str = "no figure";

/// The unit in which seconds are displayed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FigureUnit {
    Milliseconds,
    Microseconds,
    /// The figure is bytes, not seconds.
    Megabytes,
    PerSecond {
        /// Amount of work in one run.
        amount: f64,
        unit: &'static str,
    },
}

impl FigureUnit {
    fn format_seconds(self, seconds: f64) -> String {
        let (number, unit) = match self {
            FigureUnit::Milliseconds => (seconds * 1e3, "ms"),
            FigureUnit::Microseconds => (seconds * 1e6, "us"),
            FigureUnit::Megabytes => (seconds / 1e6, "MB"),
            FigureUnit::PerSecond { amount, unit } => (amount / seconds, unit),
        };
        format!("{number:.*} {unit}", if number < 10.0 { 3 } else { 1 })
    }

    fn format_timing(self, timing: Timing) -> String {
        format!("{} ({})", self.format_seconds(timing.median), self.format_seconds(timing.best))
    }
}

/// A goal for a ratio or a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PerformanceGoal {
    /// Our time divided by theirs.
    TimeAtMost(f64),
    /// Our memory divided by theirs.
    MemoryAtMost(f64),
    /// Our speed divided by theirs.
    SpeedAtLeast(f64),
    /// Our time, regardless of theirs.
    SecondsAtMost(f64),
}

impl PerformanceGoal {
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            PerformanceGoal::TimeAtMost(_) | PerformanceGoal::MemoryAtMost(_) | PerformanceGoal::SecondsAtMost(_) => {
                ours / theirs
            }
            PerformanceGoal::SpeedAtLeast(_) => theirs / ours,
        }
    }

    fn is_met(self, ours: f64, theirs: f64) -> bool {
        match self {
            PerformanceGoal::TimeAtMost(most) | PerformanceGoal::MemoryAtMost(most) => self.ratio(ours, theirs) <= most,
            PerformanceGoal::SpeedAtLeast(least) => self.ratio(ours, theirs) >= least,
            PerformanceGoal::SecondsAtMost(most) => ours <= most,
        }
    }
}

impl Display for PerformanceGoal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        match self {
            PerformanceGoal::TimeAtMost(most) => write!(f, "time <= {most:.2}"),
            PerformanceGoal::MemoryAtMost(most) => write!(f, "memory <= {most:.2}"),
            PerformanceGoal::SpeedAtLeast(least) => write!(f, "speed >= {least:.2}"),
            PerformanceGoal::SecondsAtMost(most) if *most < 1e-3 => write!(f, "<= {:.2} us", most * 1e6),
            PerformanceGoal::SecondsAtMost(most) => write!(f, "<= {most:.2} s"),
        }
    }
}

/// A comparison with one peer.
#[derive(Debug, Default)]
pub(crate) struct ComparisonRow {
    pub(crate) ours: String,
    pub(crate) peer: String,
    pub(crate) theirs: String,
    pub(crate) ratio: String,
    pub(crate) goal: String,
    pub(crate) met: String,
    /// The share of the cores that other processes took meanwhile.
    pub(crate) others: String,
}

impl ComparisonRow {
    /// Returns a comparison to which the goal applies.
    pub(crate) fn new(
        figure: FigureUnit,
        ours: Timing,
        peer: &str,
        theirs: Timing,
        goal: PerformanceGoal,
    ) -> ComparisonRow {
        let ratio = goal.ratio(ours.median, theirs.median);
        ComparisonRow {
            ours: figure.format_timing(ours),
            peer: peer.to_owned(),
            theirs: figure.format_timing(theirs),
            ratio: format!("{ratio:.3} ({:.3})", goal.ratio(ours.best, theirs.best)),
            goal: goal.to_string(),
            met: if goal.is_met(ours.median, theirs.median) { "yes" } else { "no" }.to_owned(),
            others: "-".to_owned(),
        }
    }

    /// Returns a row per peer; the goal applies to the fastest of them.
    pub(crate) fn rows_beside_peers(
        figure: FigureUnit,
        ours: Timing,
        peers: &[(String, Timing)],
        goal: PerformanceGoal,
    ) -> Vec<ComparisonRow> {
        let fastest = peers.iter().map(|(_, theirs)| theirs.median).fold(f64::INFINITY, f64::min);
        let row = |(peer, theirs): &(String, Timing)| {
            let row = ComparisonRow::new(figure, ours, peer, *theirs, goal);
            if theirs.median <= fastest { row } else { row.without_goal() }
        };
        peers.iter().map(row).collect()
    }

    /// Removes the goal from the comparison.
    pub(crate) fn without_goal(self) -> ComparisonRow {
        ComparisonRow { goal: "-".to_owned(), met: "-".to_owned(), ..self }
    }

    /// Returns a figure of ours without a peer.
    pub(crate) fn without_peer(figure: FigureUnit, ours: Timing, goal: PerformanceGoal) -> ComparisonRow {
        let none = || "-".to_owned();
        ComparisonRow {
            peer: none(),
            theirs: none(),
            ratio: none(),
            ..ComparisonRow::new(figure, ours, "", ours, goal)
        }
    }

    /// Returns a mean of ratios.
    pub(crate) fn mean_ratio(ratio: f64, peer: &str, goal: PerformanceGoal) -> ComparisonRow {
        let timing = |seconds| Timing { best: seconds, median: seconds };
        let row = ComparisonRow::new(FigureUnit::Milliseconds, timing(ratio), peer, timing(1.0), goal);
        ComparisonRow { ours: "-".to_owned(), theirs: "-".to_owned(), ratio: format!("{ratio:.3}"), ..row }
    }

    /// Returns a row with text only.
    pub(crate) fn remark_only(ours: &str, about: &str) -> ComparisonRow {
        let none = || "-".to_owned();
        let (ours, peer) = (ours.to_owned(), about.to_owned());
        ComparisonRow { ours, peer, theirs: none(), ratio: none(), goal: none(), met: none(), others: none() }
    }

    /// Adds a remark to our side, if it is not empty.
    pub(crate) fn with_remark(self, remark: &str) -> ComparisonRow {
        let ours = if remark.is_empty() { self.ours } else { format!("{}; {remark}", self.ours) };
        ComparisonRow { ours, ..self }
    }

    /// Replaces the result of the goal by the reason why it is not judged.
    pub(crate) fn mark_unjudged(self, reason: Option<&str>) -> ComparisonRow {
        match reason {
            Some(reason) if self.met != "-" => ComparisonRow { met: format!("not judged: {reason}"), ..self },
            _ => self,
        }
    }

    /// Adds the share of the cores that other processes took during the measurement.
    pub(crate) fn with_other_load(self, others: f64) -> ComparisonRow {
        let doubt = if others > OTHERS_MAX && ["yes", "no"].contains(&&*self.met) { " ?" } else { "" };
        ComparisonRow { others: format!("{:.0} %", others * 1e2), met: format!("{}{doubt}", self.met), ..self }
    }

    fn markdown_line(&self, work: &str) -> String {
        let ComparisonRow { ours, peer, theirs, ratio, goal, met, others } = self;
        format!("| {work} | {ours} | {peer} | {theirs} | {ratio} | {goal} | {met} | {others} |")
    }

    /// Returns a row for a comparison that failed.
    pub(crate) fn without_figures(reason: &str) -> ComparisonRow {
        ComparisonRow { peer: reason.replace('|', "/"), met: NO_FIGURE.to_owned(), ..ComparisonRow::default() }
    }
}

/// The rows so far, under a description of the machine.
#[derive(Debug)]
pub(crate) struct ComparisonTable {
    head: String,
    rows: Vec<(String, ComparisonRow)>,
}

impl ComparisonTable {
    pub(crate) fn new(head: String) -> ComparisonTable {
        ComparisonTable { head, rows: Vec::new() }
    }

    /// Adds a benchmark's rows and prints them, because the next benchmark can take long.
    pub(crate) fn add(&mut self, work: &str, rows: Vec<ComparisonRow>) {
        rows.iter().for_each(|row| println!("{}", row.markdown_line(work)));
        self.rows.extend(rows.into_iter().map(|row| (work.to_owned(), row)));
    }

    /// Returns whether every comparison succeeded.
    pub(crate) fn is_complete(&self) -> bool {
        self.rows.iter().all(|(_, row)| row.met != NO_FIGURE)
    }

    /// Writes the table to a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn save(&self, file: &Path) -> Result<(), String> {
        std::fs::write(file, self.to_string()).map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Display for ComparisonTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        writeln!(f, "{}\n\n{EXPLANATION}\n", self.head)?;
        writeln!(f, "| work | saggar | peer | its figure | ratio | goal | met | others |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        self.rows.iter().try_for_each(|(work, row)| writeln!(f, "{}", row.markdown_line(work)))
    }
}
