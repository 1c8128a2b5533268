//! Checks a store on another machine before it is used.
//!
//! Attempts and servers exclude each other by creating objects whose names can be free only once. A store that ignores
//! the condition of such a request would let two of them succeed, and so lose a checkpoint. Stores that check the
//! condition and then write without a lock pass a check that sends one request after the other, so the requests of this
//! check race.

use std::time::Duration;

use saggar_clock::UnixMillis;

use super::{ClockSkew, ObjectStorage, PutOutcome};
use crate::durable;
use crate::error::StoreError;
use crate::limits::PROBE_RACERS;

/// Races, because a store without a lock can decide one of them correctly by chance.
const RACES: u32 = 3;
/// The folder of the objects that races create.
const FOLDER: &str = "probes";

/// What a check of a store measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreProbe {
    /// Time of a request that reads a small object.
    pub latency: Duration,
    /// The difference of the clocks; `None` if the store's answers have no time.
    pub clock_skew: Option<ClockSkew>,
}

impl ObjectStorage {
    /// Checks that the store can be written, read and listed, and that of several requests which create an object under
    /// one name at the same time exactly one succeeds. `now_ms` returns this machine's time. Removes what it wrote.
    ///
    /// # Errors
    /// Returns `UnsafeStore` if not exactly one succeeds or if another's content is stored; otherwise the error of the
    /// request that failed.
    pub async fn probe(&self, now_ms: impl Fn() -> UnixMillis) -> Result<StoreProbe, StoreError> {
        let mut latency = Duration::MAX;
        for _ in 0..RACES {
            let name = format!("{FOLDER}/{}", durable::random_hex::<16>());
            let raced = self.race(&name).await;
            if let Ok(read) = &raced {
                latency = latency.min(*read);
            }
            let deleted = self.delete(&name).await;
            raced.and(deleted)?;
        }
        self.list_flat(FOLDER).await?;
        Ok(StoreProbe { latency, clock_skew: self.clock_skew(now_ms()) })
    }

    /// Creates an object several times at once, and returns the time of a read.
    async fn race(&self, name: &str) -> Result<Duration, StoreError> {
        let contents: Vec<String> = (0..PROBE_RACERS).map(|racer| format!("racer {racer}\n")).collect();
        let creates = contents.iter().map(|content| self.create_unique(name, content.clone().into()));
        let outcomes = futures::future::join_all(creates).await;
        let mut winners = Vec::new();
        for (content, outcome) in contents.iter().zip(outcomes) {
            if outcome? == PutOutcome::Created {
                winners.push(content);
            }
        }
        let began = std::time::Instant::now();
        let stored = self.get(name).await?;
        let latency = began.elapsed();
        if matches!(winners[..], [winner] if winner.as_bytes() == stored) {
            return Ok(latency);
        }
        Err(StoreError::UnsafeStore {
            store: self.address().to_owned(),
            created: winners.len(),
            requests: PROBE_RACERS,
        })
    }
}
