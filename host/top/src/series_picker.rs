//! The list in which the user chooses series.

use crate::key_actions::TopAction;
use crate::series_name::SeriesKey;

/// The list, the text that filters it, and the selected series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesPicker {
    keys: Vec<SeriesKey>,
    pub(crate) filter: String,
    cursor: usize,
}

impl SeriesPicker {
    /// Returns the list of every series.
    pub(crate) fn new(keys: Vec<SeriesKey>) -> SeriesPicker {
        SeriesPicker { keys, filter: String::new(), cursor: 0 }
    }

    /// Returns the series whose owner and name contain the filter.
    pub(crate) fn listed(&self) -> Vec<&SeriesKey> {
        let matches = |key: &&SeriesKey| format!("{}:{}", key.owner, key.name).contains(&self.filter);
        self.keys.iter().filter(matches).collect()
    }

    /// Returns the number of the selected series in the list.
    pub(crate) fn cursor(&self) -> usize {
        self.cursor.min(self.listed().len().saturating_sub(1))
    }

    /// Returns the selected series.
    pub(crate) fn selected(&self) -> Option<&SeriesKey> {
        self.listed().get(self.cursor()).copied()
    }

    /// Applies a key. Returns whether it leaves the list.
    pub(crate) fn apply(&mut self, action: TopAction) -> bool {
        let last = self.listed().len().saturating_sub(1);
        match action {
            TopAction::Up => self.cursor = self.cursor().saturating_sub(1),
            TopAction::Down => self.cursor = (self.cursor() + 1).min(last),
            TopAction::Type(letter) if self.filter.len() < 60 => self.filter.push(letter),
            TopAction::Backspace => drop(self.filter.pop()),
            TopAction::Close | TopAction::Open => return true,
            _ => {}
        }
        false
    }
}
