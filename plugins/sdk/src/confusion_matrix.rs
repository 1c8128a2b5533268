//! Which classes a classifier takes for which: exact counts, as a table for people and as CSV.

use std::fmt::Write;

use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::logging;

/// Classes up to which the log shows every count; more go to the file alone.
const CLASSES_SHOWN_MAX: usize = 32;
/// Letters of a class's name that the log shows.
const NAME_CHARS_MAX: usize = 12;
/// Digits after the point of a share.
const RATIO_DIGITS: usize = 5;

/// How often items of each class were taken for each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: Vec<String>,
    /// `counts[true class * classes + predicted class]`.
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// A table of these classes in which nothing is counted yet.
    pub fn new(classes: &Classes) -> Self {
        let classes = classes.names().to_vec();
        Self { counts: vec![0; classes.len() * classes.len()], classes }
    }

    /// Counts an item of the class `truth` that was taken for `predicted`.
    ///
    /// # Errors
    /// `Label` if one of them is no class.
    pub fn add(&mut self, truth: i32, predicted: i32) -> Result<()> {
        let classes = self.classes.len();
        let class = |given: i32| {
            let class = usize::try_from(given).ok().filter(|class| *class < classes);
            class.ok_or(Error::Label { given, classes })
        };
        let at = class(truth)? * classes + class(predicted)?;
        self.counts[at] += 1;
        Ok(())
    }

    /// Items of the class `truth` that were taken for `predicted`; 0 where one of them is no class.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        let classes = self.classes.len();
        if truth < classes && predicted < classes { self.counts[truth * classes + predicted] } else { 0 }
    }

    /// Items counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The share of the items that were taken for what they are; none of no items.
    pub fn accuracy(&self) -> Option<f64> {
        let right = (0..self.classes.len()).map(|class| self.count(class, class)).sum();
        ratio(right, self.total())
    }

    /// The share of a class's items that were taken for it; none where it has no items.
    pub fn recall(&self, class: usize) -> Option<f64> {
        ratio(self.count(class, class), self.class_total(class))
    }

    /// Writes the table to the log and to the job's output `confusion.csv`.
    ///
    /// # Errors
    /// `Host` if the file cannot be kept.
    pub fn report(&self, job: &Job) -> Result<()> {
        if self.classes.len() <= CLASSES_SHOWN_MAX {
            logging::info("held-out items: a row for each true class, a column for each predicted one");
            self.table().lines().for_each(logging::info);
        } else {
            logging::info(&format!(
                "{} classes: confusion.csv has how often each was taken for each",
                self.classes.len()
            ));
        }
        job.write_output("confusion.csv", self.to_csv().as_bytes())
    }

    /// The table, a row for each true class and a column for each predicted one, with totals and each class's recall;
    /// the last recall is the accuracy.
    pub fn table(&self) -> String {
        let names: Vec<String> = self.classes.iter().map(|name| shorten_name(name)).collect();
        let first = names.iter().map(|name| name.chars().count()).chain([5]).max().unwrap_or_default();
        let number = self.total().to_string().len();
        let widths: Vec<usize> = names.iter().map(|name| name.chars().count().max(number)).collect();
        let total = number.max(5);
        let row = |name: &str, cells: &[String]| {
            let mut line = format!("{name:>first$}");
            for (cell, width) in cells.iter().zip(widths.iter().chain([&total, &(RATIO_DIGITS + 2)])) {
                write!(line, "  {cell:>width$}").expect("a string takes whatever is written");
            }
            line
        };
        let head: Vec<String> = names.iter().cloned().chain(["total".to_owned(), "recall".to_owned()]).collect();
        let mut lines = vec![row("", &head)];
        for (class, name) in names.iter().enumerate() {
            lines.push(row(name, &self.row(class, "-")));
        }
        lines.push(row("total", &self.totals("-")));
        lines.join("\n")
    }

    /// The same as CSV (RFC 4180); a share of nothing is empty.
    pub fn to_csv(&self) -> String {
        let row = |name: &str, cells: &[String]| format!("{},{}\r\n", quote_csv(name), cells.join(","));
        let names = self.classes.iter().map(|name| quote_csv(name));
        let head: Vec<String> = names.chain(["total".to_owned(), "recall".to_owned()]).collect();
        let mut text = row("true class", &head);
        for (class, name) in self.classes.iter().enumerate() {
            text += &row(name, &self.row(class, ""));
        }
        text + &row("total", &self.totals(""))
    }

    fn class_total(&self, truth: usize) -> u64 {
        (0..self.classes.len()).map(|predicted| self.count(truth, predicted)).sum()
    }

    /// The counts of a class's items, how many they are, and its recall, or `none`.
    fn row(&self, truth: usize, none: &str) -> Vec<String> {
        let counts = (0..self.classes.len()).map(|predicted| self.count(truth, predicted).to_string());
        counts.chain([self.class_total(truth).to_string(), format_ratio(self.recall(truth), none)]).collect()
    }

    /// How often each class was predicted, all items, and the accuracy, or `none`.
    fn totals(&self, none: &str) -> Vec<String> {
        let classes = self.classes.len();
        let column = |predicted| (0..classes).map(|truth| self.count(truth, predicted)).sum::<u64>().to_string();
        (0..classes).map(column).chain([self.total().to_string(), format_ratio(self.accuracy(), none)]).collect()
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn format_ratio(share: Option<f64>, none: &str) -> String {
    share.map_or_else(|| none.to_owned(), |share| format!("{share:.RATIO_DIGITS$}"))
}

fn shorten_name(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}

fn quote_csv(name: &str) -> String {
    if name.contains([',', '"', '\r', '\n']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_class_matrix() -> ConfusionMatrix {
        let names = ["cat", "dog, large", "bird of paradise"].map(str::to_owned).to_vec();
        let mut confusion = ConfusionMatrix::new(&Classes::new(names));
        for (truth, predicted) in [(0, 0), (0, 0), (0, 1), (1, 1)] {
            confusion.add(truth, predicted).unwrap();
        }
        confusion
    }

    #[test]
    fn every_item_is_counted_once_in_its_row() {
        let confusion = three_class_matrix();
        assert_eq!((confusion.count(0, 0), confusion.count(0, 1), confusion.count(1, 0)), (2, 1, 0));
        assert_eq!((confusion.total(), confusion.accuracy()), (4, Some(0.75)));
        assert_eq!([0, 1, 2].map(|class| confusion.recall(class)), [Some(2.0 / 3.0), Some(1.0), None]);
    }

    #[test]
    fn the_confusion_table_has_totals_and_recalls() {
        assert_eq!(
            three_class_matrix().table(),
            "              cat  dog, large  bird of par…  total   recall\n         \
                      cat    2           1             0      3  0.66667\n  \
               dog, large    0           1             0      1  1.00000\n\
             bird of par…    0           0             0      0        -\n       \
                    total    2           2             0      4  0.75000"
        );
    }

    #[test]
    fn class_names_are_quoted_as_csv_requires() {
        assert_eq!(
            three_class_matrix().to_csv(),
            "true class,cat,\"dog, large\",bird of paradise,total,recall\r\n\
             cat,2,1,0,3,0.66667\r\n\"dog, large\",0,1,0,1,1.00000\r\nbird of paradise,0,0,0,0,\r\n\
             total,2,2,0,4,0.75000\r\n"
        );
    }

    #[test]
    fn an_unknown_label_is_named_in_the_error() {
        let error = three_class_matrix().add(3, 0).unwrap_err();
        assert_eq!(error.to_string(), "label 3 is no class: there are 3, from 0");
        assert!(three_class_matrix().add(0, -1).is_err());
    }
}
