//! Confusion matrix: exact counts per true and predicted class, as a text table and as CSV.

use std::fmt::Write;

use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::logging;

/// Maximum number of classes for which the log shows the table; for more, it is only written to the file.
const CLASSES_SHOWN_MAX: usize = 32;
/// Maximum number of characters of a class name in the table.
const NAME_CHARS_MAX: usize = 12;
/// Decimal places of a ratio.
const RATIO_DIGITS: usize = 5;

/// A confusion matrix: the number of items per true class and predicted class.
///
/// ```
/// use saggar_plugin::{Classes, ConfusionMatrix};
///
/// let classes = Classes::new(vec!["cat".to_owned(), "dog".to_owned()]);
/// let mut confusion = ConfusionMatrix::new(&classes);
/// for (truth, predicted) in [(0, 0), (0, 1), (1, 1), (1, 1)] {
///     confusion.add(truth, predicted)?;
/// }
/// assert_eq!(confusion.count(0, 1), 1); // one cat was classified as a dog
/// assert_eq!(confusion.accuracy(), Some(0.75));
/// assert_eq!(confusion.recall(0), Some(0.5));
/// println!("{}", confusion.table());
/// # Ok::<(), saggar_plugin::Error>(())
/// ```
///
/// Over the held-out items, after a training:
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(job: &Job, feed: &Feed<'_>, classes: &Classes, linear: &layers::Linear) -> Result<()> {
/// let confusion = ConfusionMatrix::of_held_out(feed, classes, &|_, batch| {
///     Ok((linear.forward(batch.get("x")?)?, batch.get("label")?.clone()))
/// })?;
/// if let Some(confusion) = confusion {
///     confusion.report(job)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: Vec<String>,
    /// `counts[true class * classes + predicted class]`.
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// Returns an empty confusion matrix of these classes.
    pub fn new(classes: &Classes) -> Self {
        let classes = classes.names().to_vec();
        Self { counts: vec![0; classes.len() * classes.len()], classes }
    }

    /// Counts an item of the class `truth` that was classified as `predicted`.
    ///
    /// # Errors
    /// Returns `Label` if one of them is not a class index.
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

    /// Returns the number of items of the class `truth` that were classified as `predicted`; 0 if one of them is not a
    /// class index.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        let classes = self.classes.len();
        if truth < classes && predicted < classes { self.counts[truth * classes + predicted] } else { 0 }
    }

    /// Returns the number of items counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the fraction of items that were classified correctly, or `None` if no items were counted.
    pub fn accuracy(&self) -> Option<f64> {
        let right = (0..self.classes.len()).map(|class| self.count(class, class)).sum();
        ratio(right, self.total())
    }

    /// Returns the recall of a class: the fraction of its items that were classified correctly. Returns `None` if it
    /// has no items.
    pub fn recall(&self, class: usize) -> Option<f64> {
        ratio(self.count(class, class), self.class_total(class))
    }

    /// Writes the table to the log, if there are at most 32 classes, and to the job's output `confusion.csv`.
    ///
    /// # Errors
    /// Returns `Host` if the file cannot be stored.
    pub fn report(&self, job: &Job) -> Result<()> {
        if self.classes.len() <= CLASSES_SHOWN_MAX {
            logging::info("held-out items: a row for each true class, a column for each predicted one");
            self.table().lines().for_each(logging::info);
        } else {
            logging::info(&format!(
                "the confusion matrix of {} classes is too large for the log: see confusion.csv",
                self.classes.len()
            ));
        }
        job.write_output("confusion.csv", self.to_csv().as_bytes())
    }

    /// Returns the table as text: one row per true class and one column per predicted class, with totals and each
    /// class's recall. The last cell of the last row is the accuracy.
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

    /// Returns the table as CSV (RFC 4180). Undefined ratios are empty.
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

    /// Returns the cells of a class's row: the counts, their sum, and the recall or `none`.
    fn row(&self, truth: usize, none: &str) -> Vec<String> {
        let counts = (0..self.classes.len()).map(|predicted| self.count(truth, predicted).to_string());
        counts.chain([self.class_total(truth).to_string(), format_ratio(self.recall(truth), none)]).collect()
    }

    /// Returns the cells of the last row: the number of predictions of each class, the number of items, and the
    /// accuracy or `none`.
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
        assert_eq!(error.to_string(), "label 3 is out of range: there are 3 classes, numbered from 0");
        assert!(three_class_matrix().add(0, -1).is_err());
    }
}
