//! Writes the images, tables and histograms that a training logs to the job's files, within the limits of a job.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use saggar_store::error::is_store_unavailable;
use saggar_store::limits::{LOGGED_BYTES_MAX, LOGGED_ITEMS_MAX};
use saggar_store::{JobFiles, LoggedItem, LoggedKey};

use crate::limits::{LOGGED_WAITING_BYTES_MAX, STORE_OUTAGE_PAUSE_MAX};
use crate::storage_guard::StorageGuard;

/// After a failed write: the pause before the next one, as a multiple of the time that it took.
const LOGGED_PAUSE_FACTOR: u32 = 20;

/// What a job keeps at most.
#[derive(Clone, Copy, Debug)]
struct LoggedLimits {
    items: usize,
    bytes: u64,
}

/// The items that a job has so far.
#[derive(Debug, Default)]
struct StoredItems {
    bytes_by_key: BTreeMap<LoggedKey, u64>,
    bytes: u64,
}

/// The logged items of a job. An item that is not kept never ends the training, and a store that does not answer does not
/// stop it: items wait in memory meanwhile.
#[derive(Debug)]
pub(super) struct LoggedItemWriter {
    files: Arc<dyn JobFiles>,
    job: String,
    limits: LoggedLimits,
    /// The items of this and of earlier attempts, once the first item is logged.
    stored: Option<StoredItems>,
    /// Items that the store has not accepted yet, oldest first.
    waiting: VecDeque<(LoggedKey, Vec<u8>)>,
    waiting_bytes: u64,
    /// When the store is asked again after it has not answered.
    next_try: Option<Instant>,
    /// Whether the log already says that items are dropped at the limit.
    limit_logged: bool,
    /// Whether the log already says that items cannot be stored.
    failure_logged: bool,
}

/// Why an item is not stored.
#[derive(Debug)]
enum WriteFailure {
    /// The store does not answer.
    Outage(String),
    /// It cannot be stored.
    Refused(String),
}

impl WriteFailure {
    fn from_error(error: &(dyn Error + 'static)) -> WriteFailure {
        if is_store_unavailable(error) {
            WriteFailure::Outage(error.to_string())
        } else {
            WriteFailure::Refused(error.to_string())
        }
    }
}

impl LoggedItemWriter {
    pub(super) fn new(files: Arc<dyn JobFiles>, job: String) -> LoggedItemWriter {
        LoggedItemWriter {
            files,
            job,
            limits: LoggedLimits { items: LOGGED_ITEMS_MAX, bytes: LOGGED_BYTES_MAX },
            stored: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_try: None,
            limit_logged: false,
            failure_logged: false,
        }
    }

    /// Stores an item, replacing one with the same key, or lets it wait while the store does not answer. Returns a line for
    /// the job's log if the item was dropped and the log does not say so yet.
    pub(super) fn write(&mut self, key: LoggedKey, item: &LoggedItem, room: &mut StorageGuard) -> Option<String> {
        // Checked before the item is encoded, so that items beyond the limit take little time.
        if self.is_full_for(&key) {
            return self.limit_line(&key);
        }
        let data = match item.encode() {
            Ok(data) => data,
            Err(reason) => return self.failure_line(&reason),
        };
        if self.waiting_bytes + data.len() as u64 > LOGGED_WAITING_BYTES_MAX {
            return self.failure_line("the store does not answer, and no more items can wait in memory");
        }
        self.waiting_bytes += data.len() as u64;
        self.waiting.push_back((key, data));
        if self.next_try.is_some_and(|next| Instant::now() < next) {
            return None;
        }
        // The items wait if the store does not answer.
        self.flush(room).unwrap_or(None)
    }

    /// Stores the items that wait. Returns a line for the job's log as [`Self::write`] does.
    ///
    /// # Errors
    /// The reason if the store does not answer; the items wait on.
    pub(super) fn flush(&mut self, room: &mut StorageGuard) -> Result<Option<String>, String> {
        let began = Instant::now();
        let mut line = None;
        while let Some((key, data)) = self.waiting.pop_front() {
            let dropped = match self.store(&key, &data, room) {
                Err(WriteFailure::Outage(reason)) => {
                    self.waiting.push_front((key, data));
                    // A store that does not answer takes a small part of the training's time.
                    let pause = began.elapsed().saturating_mul(LOGGED_PAUSE_FACTOR).min(STORE_OUTAGE_PAUSE_MAX);
                    self.next_try = Some(Instant::now() + pause);
                    return Err(reason);
                }
                Err(WriteFailure::Refused(reason)) => self.failure_line(&reason),
                Ok(dropped) => dropped,
            };
            self.waiting_bytes -= data.len() as u64;
            line = line.or(dropped);
        }
        self.next_try = None;
        Ok(line)
    }

    fn is_full_for(&self, key: &LoggedKey) -> bool {
        let is_full = |stored: &StoredItems| {
            stored.bytes_by_key.len() >= self.limits.items && !stored.bytes_by_key.contains_key(key)
        };
        self.stored.as_ref().is_some_and(is_full)
    }

    fn store(&mut self, key: &LoggedKey, data: &[u8], room: &mut StorageGuard) -> Result<Option<String>, WriteFailure> {
        if self.stored.is_none() {
            self.stored = Some(list(&*self.files, &self.job).map_err(|error| WriteFailure::from_error(&error))?);
        }
        if self.is_full_for(key) {
            return Ok(self.limit_line(key));
        }
        let stored = self.stored.get_or_insert_default();
        let replaced = stored.bytes_by_key.get(key).copied().unwrap_or(0);
        let bytes = stored.bytes - replaced + data.len() as u64;
        if bytes > self.limits.bytes {
            return Ok(self.limit_line(key));
        }
        room.reserve(data.len() as u64).map_err(|error| WriteFailure::from_error(&error))?;
        let written = self.files.write_logged_item(&self.job, key, data);
        written.map_err(|error| WriteFailure::from_error(&error))?;
        stored.bytes = bytes;
        stored.bytes_by_key.insert(key.clone(), data.len() as u64);
        Ok(None)
    }

    /// Returns the line that reports an item that cannot be stored, once.
    fn failure_line(&mut self, reason: &str) -> Option<String> {
        let is_new = !std::mem::replace(&mut self.failure_logged, true);
        is_new.then(|| format!("logged items are not kept: {reason}"))
    }

    /// Returns the line that reports the limit, once.
    fn limit_line(&mut self, key: &LoggedKey) -> Option<String> {
        let LoggedLimits { items, bytes } = self.limits;
        let is_new = !std::mem::replace(&mut self.limit_logged, true);
        let (kind, name, step) = (key.kind.name(), &key.name, key.step);
        is_new.then(|| {
            format!(
                "a job keeps at most {items} images, tables and histograms of {} MiB together: the {kind} `{name}` of \
                 step {step} and later ones that do not fit are dropped",
                bytes >> 20
            )
        })
    }
}

fn list(files: &dyn JobFiles, job: &str) -> io::Result<StoredItems> {
    let bytes_by_key: BTreeMap<LoggedKey, u64> =
        files.list_logged_items(job)?.into_iter().map(|item| (item.key, item.bytes)).collect();
    let bytes = bytes_by_key.values().sum();
    Ok(StoredItems { bytes_by_key, bytes })
}

#[cfg(test)]
mod tests {
    use saggar_store::logged_items::LoggedHistogram;
    use saggar_store::{LoggedKind, StateDir};

    use super::*;

    fn key(step: u64) -> LoggedKey {
        LoggedKey { step, kind: LoggedKind::Histogram, name: "weights".to_owned() }
    }

    fn histogram(bins: usize) -> LoggedItem {
        let edges = (0..=bins).map(|edge| edge as f64).collect();
        LoggedItem::Histogram(LoggedHistogram { edges, counts: vec![1; bins] })
    }

    /// Returns a writer with these limits, as an attempt begins with.
    fn writer(home: &StateDir, items: usize, bytes: u64) -> (LoggedItemWriter, StorageGuard) {
        let mut writer = LoggedItemWriter::new(home.job_files(), "j".to_owned());
        writer.limits = LoggedLimits { items, bytes };
        (writer, StorageGuard::new(None, home.clone(), home.models()))
    }

    #[test]
    fn a_million_items_keep_the_first_ones_and_one_line_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let (mut logged, mut room) = writer(&home, 20, 1 << 30);
        let item = histogram(1);
        let lines: Vec<String> = (0..1_000_000).filter_map(|step| logged.write(key(step), &item, &mut room)).collect();
        let line = "a job keeps at most 20 images, tables and histograms of 1024 MiB together: the histogram `weights` of \
                    step 20 and later ones that do not fit are dropped";
        assert_eq!(lines, [line]);
        let steps = |home: &StateDir| {
            let listed = home.job_files().list_logged_items("j").unwrap();
            listed.iter().map(|item| item.key.step).collect::<Vec<_>>()
        };
        assert_eq!(steps(&home), (0..20).collect::<Vec<u64>>());
        // The next attempt counts what is there, and replaces what it logs again.
        let (mut logged, mut room) = writer(&home, 20, 1 << 30);
        assert_eq!(logged.write(key(3), &histogram(2), &mut room), None);
        assert!(logged.write(key(20), &item, &mut room).is_some());
        assert_eq!(steps(&home), (0..20).collect::<Vec<u64>>());
        let replaced = home.job_files().read_logged_item("j", &key(3)).unwrap().unwrap();
        assert_eq!(replaced, histogram(2).encode().unwrap());
    }

    #[test]
    fn the_limit_on_bytes_counts_replaced_items_once() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let bytes = histogram(8).encode().unwrap().len() as u64;
        let (mut logged, mut room) = writer(&home, 100, 2 * bytes);
        for step in [1, 1, 1, 2] {
            assert_eq!(logged.write(key(step), &histogram(8), &mut room), None, "{step}");
        }
        assert!(logged.write(key(3), &histogram(1), &mut room).is_some());
        assert_eq!(logged.write(key(2), &histogram(1), &mut room), None);
        assert_eq!(logged.write(key(3), &histogram(1), &mut room), None, "there is room again");
    }

    #[test]
    fn a_full_store_drops_items_and_says_so_once() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let (mut logged, _) = writer(&home, 100, 1 << 30);
        let mut full = StorageGuard::new(Some(1), home.clone(), home.models());
        let line = logged.write(key(1), &histogram(1), &mut full).unwrap();
        assert!(line.starts_with("logged items are not kept: quota-exceeded"), "{line}");
        assert_eq!(logged.write(key(2), &histogram(1), &mut full), None);
        assert_eq!(home.job_files().list_logged_items("j").unwrap(), []);
    }
}
