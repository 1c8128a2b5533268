//! Limits the number of versions that are loaded at the same time. Few load at once so that each is quick, but a slow
//! load does not block other models.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::limits::{LOAD_TURN_TIME_MAX, LOADS_MAX, SLOW_LOADS_MAX};

/// Grants turns to loads, in order of request.
#[derive(Debug)]
pub(crate) struct LoadLimiter {
    /// Permits of loads within their turn.
    turn_permits: Semaphore,
    /// Permits of all running loads, including those whose turn has ended.
    load_permits: Semaphore,
    turn_time: Duration,
}

impl LoadLimiter {
    pub(crate) fn new() -> LoadLimiter {
        let (turns, all) = (Semaphore::new(LOADS_MAX), Semaphore::new(SLOW_LOADS_MAX));
        LoadLimiter { turn_permits: turns, load_permits: all, turn_time: LOAD_TURN_TIME_MAX }
    }

    /// Waits for a turn, then runs `load` to its end. After `LOAD_TURN_TIME_MAX` the next load gets its turn in
    /// parallel, as long as fewer than `SLOW_LOADS_MAX` are running. Returns `None` if the semaphores are closed.
    pub(crate) async fn run<T>(&self, load: impl Future<Output = T>) -> Option<T> {
        let _place = self.load_permits.acquire().await.ok()?;
        let turn = self.turn_permits.acquire().await.ok()?;
        let mut load = pin!(load);
        if let Ok(loaded) = timeout(self.turn_time, &mut load).await {
            return Some(loaded);
        }
        drop(turn);
        Some(load.await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::task::Poll;

    use super::*;

    /// Runs `count` loads that never end.
    async fn spawn_endless_loads(turns: &LoadLimiter, count: usize) {
        let mut loads: Vec<_> = (0..count).map(|_| Box::pin(turns.run(pending::<()>()))).collect();
        poll_fn(|task| {
            loads.iter_mut().for_each(|load| assert!(load.as_mut().poll(task).is_pending()));
            Poll::<()>::Pending
        })
        .await;
    }

    /// Returns whether a load gets a turn within `patience` beside `stuck` loads that never end.
    async fn gets_turn_beside_endless_loads(stuck: usize, patience: Duration) -> bool {
        let turns = LoadLimiter { turn_time: Duration::from_millis(1), ..LoadLimiter::new() };
        tokio::select! {
            biased;
            () = spawn_endless_loads(&turns, stuck) => unreachable!("they never end"),
            loaded = timeout(patience, turns.run(async {})) => loaded.is_ok(),
        }
    }

    #[tokio::test]
    async fn endless_loads_do_not_block_other_loads() {
        let patience = Duration::from_secs(60);
        assert!(gets_turn_beside_endless_loads(0, patience).await);
        assert!(gets_turn_beside_endless_loads(LOADS_MAX, patience).await);
        assert!(gets_turn_beside_endless_loads(SLOW_LOADS_MAX - 1, patience).await);
        assert!(!gets_turn_beside_endless_loads(SLOW_LOADS_MAX, Duration::from_millis(50)).await, "memory has an end");
    }
}
