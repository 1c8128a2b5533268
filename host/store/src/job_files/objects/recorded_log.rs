//! The log of an attempt whose newest lines are in the records: all servers read them at once, and an outdated lease writes
//! none. At its end the log becomes an object, and its lines are removed from the records.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AttemptLog, JobFiles, ObjectJobFiles, log_folder};
use crate::records::{JobLease, LogRecords};

/// Bytes of a log that are appended before they are recorded without a flush.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that wait while the records cannot be reached. What is more is refused.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// How often lines are recorded at most.
const CHUNK_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the log of a lease's attempt. Logs of earlier attempts, whose server did not finish them, become objects.
pub(super) fn open(
    files: &ObjectJobFiles,
    records: &Arc<dyn LogRecords>,
    lease: &JobLease,
) -> io::Result<Box<dyn AttemptLog>> {
    for attempt in records.attempts_with_chunks(&lease.job).map_err(io::Error::other)? {
        if attempt < lease.attempt
            && let Err(error) = finish(files, &**records, &lease.job, attempt)
        {
            tracing::warn!(job = lease.job, attempt, %error, "the log stays in the records");
        }
    }
    let bytes = files.log_bytes(&lease.job, lease.attempt)?;
    Ok(Box::new(RecordedLog {
        files: files.clone(),
        records: Arc::clone(records),
        lease: lease.clone(),
        sent_bytes: bytes,
        pending: String::new(),
        sent: None,
    }))
}

/// Returns the bytes of the range that are in the records, if those before them are not wanted.
pub(super) fn read(
    records: &dyn LogRecords,
    job: &str,
    attempt: u32,
    range: &Range<u64>,
) -> io::Result<Option<Vec<u8>>> {
    let Some(extent) = records.log_extent(job, attempt).map_err(io::Error::other)? else { return Ok(None) };
    (range.start >= extent.start).then(|| read_chunks(records, job, attempt, range)).transpose()
}

/// Returns the bytes of the range that are in the records.
pub(super) fn read_chunks(
    records: &dyn LogRecords,
    job: &str,
    attempt: u32,
    range: &Range<u64>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in records.log_chunks(job, attempt, range.clone()).map_err(io::Error::other)? {
        let (first, text) = (chunk.first_byte, chunk.text.as_bytes());
        let begin = range.start.saturating_sub(first).min(text.len() as u64) as usize;
        let end = range.end.saturating_sub(first).min(text.len() as u64) as usize;
        bytes.extend_from_slice(&text[begin..end]);
    }
    Ok(bytes)
}

/// Makes the chunks of a log an object, and removes them. If this was interrupted before, completes it.
fn finish(files: &ObjectJobFiles, records: &dyn LogRecords, job: &str, attempt: u32) -> io::Result<()> {
    let Some(extent) = records.log_extent(job, attempt).map_err(io::Error::other)? else { return Ok(()) };
    let stored = files.stored_log_bytes(job, attempt)?;
    if stored < extent.end {
        let text = read_chunks(records, job, attempt, &(stored..extent.end))?;
        files.store_chunk(&log_folder(job, attempt), stored, text)?;
    }
    records.remove_log_chunks(job, attempt, extent.end).map_err(io::Error::other)
}

/// A log whose newest lines are in the records.
#[derive(Debug)]
struct RecordedLog {
    files: ObjectJobFiles,
    records: Arc<dyn LogRecords>,
    lease: JobLease,
    /// Bytes that are recorded or stored.
    sent_bytes: u64,
    /// Lines after them.
    pending: String,
    /// When lines were recorded last.
    sent: Option<Instant>,
}

impl RecordedLog {
    fn record_pending(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.sent = Some(Instant::now());
        self.records.append_log(&self.lease, self.sent_bytes, &self.pending).map_err(io::Error::other)?;
        self.sent_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

impl AttemptLog for RecordedLog {
    fn bytes(&self) -> u64 {
        self.sent_bytes + self.pending.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if self.pending.len() + text.len() > CHUNK_BYTES
            && let Err(error) = self.record_pending()
            && self.pending.len() + text.len() > PENDING_BYTES_MAX
        {
            return Err(error);
        }
        self.pending.push_str(text);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.sent.is_some_and(|sent| sent.elapsed() < CHUNK_INTERVAL) {
            return Ok(());
        }
        self.record_pending()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.record_pending()?;
        finish(&self.files, &*self.records, &self.lease.job, self.lease.attempt)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::objects::{BlockingObjects, ObjectStorage};
    use crate::records::{self, JobRecords, NewJob, StateReason};

    /// Records with one claimed job, and the files of jobs in an object store in memory.
    struct TestLog {
        _directory: tempfile::TempDir,
        _runtime: tokio::runtime::Runtime,
        records: Arc<dyn JobRecords>,
        files: ObjectJobFiles,
        lease: JobLease,
    }

    impl TestLog {
        fn new() -> TestLog {
            let directory = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let records = records::open(directory.path().join("saggar.db")).unwrap();
            let spec = r#"{"plugin":"p"}"#.to_owned();
            let job = NewJob { project: "p".to_owned(), task: "t".to_owned(), spec, ..NewJob::default() };
            let job = records.submit(&job, 0).unwrap();
            let lease = records.claim(&job.id, "any", 1).unwrap().unwrap().lease;
            let objects = ObjectStorage::from_store(Arc::new(InMemory::new()));
            let objects = BlockingObjects::new(objects, runtime.handle().clone());
            let files = ObjectJobFiles::new(objects, directory.path().join("cache"));
            let files = files.with_recorded_logs(Arc::clone(&records) as Arc<dyn LogRecords>);
            TestLog { _directory: directory, _runtime: runtime, records, files, lease }
        }

        fn read(&self, attempt: u32, range: Range<u64>) -> String {
            String::from_utf8(self.files.read_log(&self.lease.job, attempt, range).unwrap()).unwrap()
        }

        /// Returns the attempts whose lines are in the records, and the bytes of the first log in the object store.
        fn state(&self) -> (Vec<u32>, u64) {
            let recorded = self.records.attempts_with_chunks(&self.lease.job).unwrap();
            (recorded, self.files.stored_log_bytes(&self.lease.job, 1).unwrap())
        }
    }

    #[test]
    fn lines_are_recorded_while_an_attempt_runs_and_become_one_object_at_its_end() {
        let it = TestLog::new();
        let mut log = it.files.open_leased_log(&it.lease).unwrap();
        log.append(b"one\n").unwrap();
        log.flush().unwrap();
        assert_eq!((it.read(1, 0..u64::MAX), it.state()), ("one\n".to_owned(), (vec![1], 0)));
        log.append("zwö\n".as_bytes()).unwrap();
        log.flush().unwrap();
        assert_eq!(it.read(1, 0..u64::MAX), "one\n", "lines are recorded once a second");
        // More than a chunk is recorded without a flush.
        let line = "x".repeat(CHUNK_BYTES);
        log.append(line.as_bytes()).unwrap();
        assert_eq!((it.read(1, 4..u64::MAX), log.bytes()), ("zwö\n".to_owned(), 9 + CHUNK_BYTES as u64));
        log.sync().unwrap();
        assert_eq!(it.state(), (Vec::new(), 9 + CHUNK_BYTES as u64));
        assert_eq!(
            (it.read(1, 2..6), it.files.log_bytes(&it.lease.job, 1).unwrap()),
            ("e\nzw".to_owned(), log.bytes())
        );
        // A log that is continued has an object and lines.
        let mut again = it.files.open_leased_log(&it.lease).unwrap();
        again.append(b"end\n").unwrap();
        again.flush().unwrap();
        assert_eq!(it.read(1, 0..u64::MAX), format!("one\nzwö\n{line}end\n"));
        assert_eq!(it.read(1, 9 + CHUNK_BYTES as u64..u64::MAX), "end\n");
        again.sync().unwrap();
        assert_eq!((it.read(1, 5 + CHUNK_BYTES as u64..u64::MAX), it.state().0), ("xxxxend\n".to_owned(), Vec::new()));
    }

    #[test]
    fn an_outdated_lease_writes_no_line_and_the_next_attempt_finishes_its_log() {
        let it = TestLog::new();
        let mut log = it.files.open_leased_log(&it.lease).unwrap();
        log.append(b"one\n").unwrap();
        log.flush().unwrap();
        it.records.requeue(&it.lease, &StateReason::new("HOST_LOST", "x"), 0, 2).unwrap();
        log.append(b"late\n").unwrap();
        let error = log.sync().unwrap_err().to_string();
        assert!(error.contains("lost its lease") || error.contains("epoch"), "{error}");
        let next = it.records.claim(&it.lease.job, "any", 3).unwrap().unwrap().lease;
        assert_eq!((next.attempt, it.state()), (2, (vec![1], 0)));
        // The lines are in an object, and were not yet removed when the server was killed.
        it.files.store_chunk(&log_folder(&it.lease.job, 1), 0, b"one\n".to_vec()).unwrap();
        let mut log = it.files.open_leased_log(&next).unwrap();
        assert_eq!((it.read(1, 0..u64::MAX), it.state()), ("one\n".to_owned(), (Vec::new(), 4)));
        log.append(b"two\n").unwrap();
        log.flush().unwrap();
        assert_eq!(it.state().0, [2]);
        assert!(it.files.remove(&it.lease.job).unwrap() > 0);
    }
}
