//! The table: figures of both sides, their ratio, and whether the goal is met.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::path::Path;

use crate::others::OTHERS_MAX;
use crate::turns::Timing;

const EXPLANATION: &str = "Figures are medians, and in brackets the best. Ratios are saggar's over the peer's; goals are \
about medians, and about the fastest of a work's peers that count. The last column is what others took of the \
cores; where that is much, what is said of a goal has a question mark.";

/// Said where a goal would be met or not.
const NO_FIGURE: &str = "no figure";

/// What seconds are told as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    Milliseconds,
    Microseconds,
    /// They are bytes.
    Megabytes,
    PerSecond {
        /// What one run does.
        amount: f64,
        unit: &'static str,
    },
}

impl Figure {
    fn tell(self, seconds: f64) -> String {
        let (number, unit) = match self {
            Figure::Milliseconds => (seconds * 1e3, "ms"),
            Figure::Microseconds => (seconds * 1e6, "us"),
            Figure::Megabytes => (seconds / 1e6, "MB"),
            Figure::PerSecond { amount, unit } => (amount / seconds, unit),
        };
        format!("{number:.*} {unit}", if number < 10.0 { 3 } else { 1 })
    }

    fn both(self, timing: Timing) -> String {
        format!("{} ({})", self.tell(timing.median), self.tell(timing.best))
    }
}

/// What the ratio is of, and what it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Our time over theirs.
    TimeAtMost(f64),
    /// Our memory over theirs.
    MemoryAtMost(f64),
    /// Our speed over theirs.
    SpeedAtLeast(f64),
    /// Our time alone, whatever theirs is.
    SecondsAtMost(f64),
}

impl Goal {
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Goal::TimeAtMost(_) | Goal::MemoryAtMost(_) | Goal::SecondsAtMost(_) => ours / theirs,
            Goal::SpeedAtLeast(_) => theirs / ours,
        }
    }

    fn is_met(self, ours: f64, theirs: f64) -> bool {
        match self {
            Goal::TimeAtMost(most) | Goal::MemoryAtMost(most) => self.ratio(ours, theirs) <= most,
            Goal::SpeedAtLeast(least) => self.ratio(ours, theirs) >= least,
            Goal::SecondsAtMost(most) => ours <= most,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        match self {
            Goal::TimeAtMost(most) => write!(f, "time <= {most:.2}"),
            Goal::MemoryAtMost(most) => write!(f, "memory <= {most:.2}"),
            Goal::SpeedAtLeast(least) => write!(f, "speed >= {least:.2}"),
            Goal::SecondsAtMost(most) if *most < 1e-3 => write!(f, "<= {:.2} us", most * 1e6),
            Goal::SecondsAtMost(most) => write!(f, "<= {most:.2} s"),
        }
    }
}

/// A comparison with one peer.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) ours: String,
    pub(crate) peer: String,
    pub(crate) theirs: String,
    pub(crate) ratio: String,
    pub(crate) goal: String,
    pub(crate) met: String,
    /// The share of the cores that others took meanwhile.
    pub(crate) others: String,
}

impl Row {
    /// The comparison that the goal is about.
    pub(crate) fn new(figure: Figure, ours: Timing, peer: &str, theirs: Timing, goal: Goal) -> Row {
        let ratio = goal.ratio(ours.median, theirs.median);
        Row {
            ours: figure.both(ours),
            peer: peer.to_owned(),
            theirs: figure.both(theirs),
            ratio: format!("{ratio:.3} ({:.3})", goal.ratio(ours.best, theirs.best)),
            goal: goal.to_string(),
            met: if goal.is_met(ours.median, theirs.median) { "yes" } else { "no" }.to_owned(),
            others: "-".to_owned(),
        }
    }

    /// A row a peer; the goal is about the fastest of them.
    pub(crate) fn beside(figure: Figure, ours: Timing, peers: &[(String, Timing)], goal: Goal) -> Vec<Row> {
        let fastest = peers.iter().map(|(_, theirs)| theirs.median).fold(f64::INFINITY, f64::min);
        let row = |(peer, theirs): &(String, Timing)| {
            let row = Row::new(figure, ours, peer, *theirs, goal);
            if theirs.median <= fastest { row } else { row.without_goal() }
        };
        peers.iter().map(row).collect()
    }

    /// A comparison that no goal is about.
    pub(crate) fn without_goal(self) -> Row {
        Row { goal: "-".to_owned(), met: "-".to_owned(), ..self }
    }

    /// A figure of ours that has no peer.
    pub(crate) fn alone(figure: Figure, ours: Timing, goal: Goal) -> Row {
        let none = || "-".to_owned();
        Row { peer: none(), theirs: none(), ratio: none(), ..Row::new(figure, ours, "", ours, goal) }
    }

    /// A mean of ratios.
    pub(crate) fn mean(ratio: f64, peer: &str, goal: Goal) -> Row {
        let timing = |seconds| Timing { best: seconds, median: seconds };
        let row = Row::new(Figure::Milliseconds, timing(ratio), peer, timing(1.0), goal);
        Row { ours: "-".to_owned(), theirs: "-".to_owned(), ratio: format!("{ratio:.3}"), ..row }
    }

    /// What is only told.
    pub(crate) fn said(ours: &str, about: &str) -> Row {
        let none = || "-".to_owned();
        let (ours, peer) = (ours.to_owned(), about.to_owned());
        Row { ours, peer, theirs: none(), ratio: none(), goal: none(), met: none(), others: none() }
    }

    /// With a remark on our side, if there is any.
    pub(crate) fn noting(self, remark: &str) -> Row {
        let ours = if remark.is_empty() { self.ours } else { format!("{}; {remark}", self.ours) };
        Row { ours, ..self }
    }

    /// Whether its goal is met is not said, for a reason.
    pub(crate) fn unjudged(self, reason: Option<&str>) -> Row {
        match reason {
            Some(reason) if self.met != "-" => Row { met: format!("not judged: {reason}"), ..self },
            _ => self,
        }
    }

    /// What others took of the cores while it was measured.
    pub(crate) fn among(self, others: f64) -> Row {
        let doubt = if others > OTHERS_MAX && ["yes", "no"].contains(&&*self.met) { " ?" } else { "" };
        Row { others: format!("{:.0} %", others * 1e2), met: format!("{}{doubt}", self.met), ..self }
    }

    fn line(&self, work: &str) -> String {
        let Row { ours, peer, theirs, ratio, goal, met, others } = self;
        format!("| {work} | {ours} | {peer} | {theirs} | {ratio} | {goal} | {met} | {others} |")
    }

    /// A comparison that could not be made.
    pub(crate) fn without_figures(reason: &str) -> Row {
        Row { peer: reason.replace('|', "/"), met: NO_FIGURE.to_owned(), ..Row::default() }
    }
}

/// Rows so far, under what they were measured on.
#[derive(Debug)]
pub(crate) struct Table {
    head: String,
    rows: Vec<(String, Row)>,
}

impl Table {
    pub(crate) fn new(head: String) -> Table {
        Table { head, rows: Vec::new() }
    }

    /// Adds a work's rows; they are also printed, since the next work may take long.
    pub(crate) fn add(&mut self, work: &str, rows: Vec<Row>) {
        rows.iter().for_each(|row| println!("{}", row.line(work)));
        self.rows.extend(rows.into_iter().map(|row| (work.to_owned(), row)));
    }

    /// Whether every comparison was made.
    pub(crate) fn is_complete(&self) -> bool {
        self.rows.iter().all(|(_, row)| row.met != NO_FIGURE)
    }

    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self, file: &Path) -> Result<(), String> {
        std::fs::write(file, self.to_string()).map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        writeln!(f, "{}\n\n{EXPLANATION}\n", self.head)?;
        writeln!(f, "| work | saggar | peer | its figure | ratio | goal | met | others |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        self.rows.iter().try_for_each(|(work, row)| writeln!(f, "{}", row.line(work)))
    }
}
