//! Names of series and the selectors of `--series`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::documents::HostDocument;

/// The series of jobs besides their metrics.
const STEP_RATE: &str = "steps-per-second";
/// The series of models.
const MODEL_SERIES: [&str; 6] = ["requests", "errors", "p50", "p99", "queue", "batch"];
/// The series of devices.
const DEVICE_SERIES: [&str; 2] = ["busy", "memory"];
/// The series that are charted if none is chosen.
const DEFAULT_SELECTORS: [&str; 3] = ["busy", "requests", "loss"];

/// The kind of thing that a series belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// A device.
    Device,
    /// A model.
    Model,
    /// A job.
    Job,
}

/// A series: its server, what it belongs to, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// The kind of its owner.
    pub kind: OwnerKind,
    /// Its name, such as `loss` or `busy`.
    pub name: String,
    /// The position of its server on the command line.
    pub host: usize,
    /// The job, model or device.
    pub owner: String,
}

impl SeriesKey {
    /// Returns whether the job records the series itself, so that the server has its past.
    pub(crate) fn is_recorded(&self) -> bool {
        self.kind == OwnerKind::Job && self.name != STEP_RATE
    }

    /// Returns the title of the panel that has the series of this name, with their unit.
    pub(crate) fn title(&self) -> String {
        match (self.kind, self.name.as_str()) {
            (OwnerKind::Device, "busy") => "device busy, %".to_owned(),
            (OwnerKind::Device, "memory") => "device memory, bytes".to_owned(),
            (OwnerKind::Model, "requests") => "requests/s".to_owned(),
            (OwnerKind::Model, "errors") => "errors/s".to_owned(),
            (OwnerKind::Model, "p50" | "p99") => "latency, ms".to_owned(),
            (OwnerKind::Model, "queue") => "queue length".to_owned(),
            (OwnerKind::Model, "batch") => "items of a batch".to_owned(),
            (OwnerKind::Job, STEP_RATE) => "steps/s".to_owned(),
            (_, name) => name.to_owned(),
        }
    }

    /// Returns the name in a legend: the owner, and the name if the panel has others.
    pub(crate) fn label(&self) -> String {
        match (self.kind, self.name.as_str()) {
            (OwnerKind::Model, "p50" | "p99") => format!("{} {}", self.owner, self.name),
            _ => self.owner.clone(),
        }
    }
}

/// Series chosen by name, such as `loss`, or by owner and name, such as `digits-7:loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSelector {
    owner: Option<String>,
    name: String,
}

/// A text that is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid series `{text}`: expected NAME or OWNER:NAME, such as `loss`, `busy` or `digits-7:loss`")]
pub struct SelectorError {
    text: String,
}

impl FromStr for SeriesSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<SeriesSelector, SelectorError> {
        let (owner, name) = match text.split_once(':') {
            Some((owner, name)) => (Some(owner.to_owned()), name),
            None => (None, text),
        };
        if name.is_empty() || owner.as_ref().is_some_and(String::is_empty) {
            return Err(SelectorError { text: text.to_owned() });
        }
        Ok(SeriesSelector { owner, name: name.to_owned() })
    }
}

impl fmt::Display for SeriesSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}:{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl SeriesSelector {
    fn selects(&self, key: &SeriesKey) -> bool {
        self.name == key.name && self.owner.as_ref().is_none_or(|owner| *owner == key.owner)
    }

    /// Returns whether the selector can select a metric of jobs.
    pub(crate) fn metric(&self) -> Option<&str> {
        let is_other = MODEL_SERIES.contains(&self.name.as_str()) || DEVICE_SERIES.contains(&self.name.as_str());
        (!is_other && self.name != STEP_RATE).then_some(self.name.as_str())
    }
}

/// The chosen series: selectors, and single series that the user added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSelection {
    selectors: Vec<SeriesSelector>,
    changed: BTreeMap<SeriesKey, bool>,
}

impl SeriesSelection {
    /// Returns the selection of some selectors, or of the default ones if the list is empty.
    pub fn new(selectors: Vec<SeriesSelector>) -> SeriesSelection {
        let default = DEFAULT_SELECTORS.map(|name| SeriesSelector { owner: None, name: name.to_owned() });
        let selectors = if selectors.is_empty() { default.to_vec() } else { selectors };
        SeriesSelection { selectors, changed: BTreeMap::new() }
    }

    /// Returns whether a series is chosen.
    pub fn contains(&self, key: &SeriesKey) -> bool {
        let chosen = || self.selectors.iter().any(|selector| selector.selects(key));
        self.changed.get(key).copied().unwrap_or_else(chosen)
    }

    /// Adds or removes a series.
    pub(crate) fn toggle(&mut self, key: &SeriesKey) {
        let chosen = self.contains(key);
        self.changed.insert(key.clone(), !chosen);
    }

    /// Returns the selection with a metric of every job.
    pub(crate) fn with_metric(&self, name: &str) -> SeriesSelection {
        let mut selection = self.clone();
        selection.selectors.push(SeriesSelector { owner: None, name: name.to_owned() });
        selection
    }

    /// Returns the first metric of jobs that a selector names.
    pub(crate) fn first_metric(&self) -> Option<&str> {
        self.selectors.iter().find_map(SeriesSelector::metric)
    }

    /// Returns the selectors that select no series of `keys`.
    pub(crate) fn unmatched<'a>(&'a self, keys: &BTreeSet<&SeriesKey>) -> Vec<&'a SeriesSelector> {
        let matches = |selector: &&SeriesSelector| !keys.iter().any(|key| selector.selects(key));
        self.selectors.iter().filter(matches).collect()
    }
}

/// Returns the values of every series at a refresh. Values that are not known are left out.
pub fn series_values(host: usize, document: &HostDocument) -> Vec<(SeriesKey, f64)> {
    let mut values = Vec::new();
    let mut add = |kind, owner: &str, name: &str, value: Option<f64>| {
        let key = SeriesKey { kind, name: name.to_owned(), host, owner: owner.to_owned() };
        values.extend(value.map(|value| (key, value)));
    };
    for device in &document.devices {
        add(OwnerKind::Device, &device.name, "busy", device.busy_percent);
        add(OwnerKind::Device, &device.name, "memory", Some(device.memory_total() as f64));
    }
    for model in &document.models {
        let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1000.0);
        add(OwnerKind::Model, &model.name, "requests", model.requests_per_second);
        add(OwnerKind::Model, &model.name, "errors", model.errors_per_second);
        add(OwnerKind::Model, &model.name, "p50", ms(model.p50_seconds));
        add(OwnerKind::Model, &model.name, "p99", ms(model.p99_seconds));
        add(OwnerKind::Model, &model.name, "queue", model.queue_length);
        add(OwnerKind::Model, &model.name, "batch", model.batch_items);
    }
    for job in document.jobs.iter().filter(|job| job.is_active()) {
        add(OwnerKind::Job, &job.name, STEP_RATE, job.steps_per_second);
        job.metrics.iter().for_each(|(name, value)| add(OwnerKind::Job, &job.name, name, *value));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: OwnerKind, owner: &str, name: &str) -> SeriesKey {
        SeriesKey { kind, name: name.to_owned(), host: 0, owner: owner.to_owned() }
    }

    #[test]
    fn selectors_choose_by_name_or_by_owner_and_name() {
        let selection =
            SeriesSelection::new(vec!["busy".parse().unwrap(), "digits-7:validation/loss".parse().unwrap()]);
        assert!(selection.contains(&key(OwnerKind::Device, "cpu", "busy")));
        assert!(selection.contains(&key(OwnerKind::Job, "digits-7", "validation/loss")));
        assert!(!selection.contains(&key(OwnerKind::Job, "digits-8", "validation/loss")));
        assert_eq!(selection.first_metric(), Some("validation/loss"));
        for wrong in ["", ":", "a:", ":b"] {
            let error = wrong.parse::<SeriesSelector>().unwrap_err();
            assert!(error.to_string().contains("such as `loss`"), "{wrong}");
        }
    }

    #[test]
    fn a_series_can_be_added_and_removed() {
        let mut selection = SeriesSelection::new(Vec::new());
        let (loss, queue) = (key(OwnerKind::Job, "a", "loss"), key(OwnerKind::Model, "m", "queue"));
        assert!(selection.contains(&loss) && !selection.contains(&queue));
        selection.toggle(&loss);
        selection.toggle(&queue);
        assert!(!selection.contains(&loss) && selection.contains(&queue));
        let known = [&loss];
        let unmatched = selection.unmatched(&known.into_iter().collect());
        assert_eq!(unmatched.iter().map(ToString::to_string).collect::<Vec<_>>(), ["busy", "requests"]);
    }
}
