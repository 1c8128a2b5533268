//! Contenders take turns, so that what else the machine does meets all of them alike.

use std::time::{Duration, Instant};

/// Between turns: threads that spin for a while after their work must not take the next one's cores.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs in a turn, at least.
const RUNS_MIN: usize = 2;

/// Seconds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Of the fastest.
    pub(crate) best: f64,
    /// Of the median one.
    pub(crate) median: f64,
}

/// Who takes turns.
pub(crate) struct Contender<'a> {
    /// Name and version.
    pub(crate) name: String,
    /// Measures for about so many seconds.
    pub(crate) turn: Box<dyn FnMut(f64) -> Result<Timing, String> + 'a>,
}

/// Measures `run` for about so many seconds.
///
/// # Errors
/// The run's own.
pub(crate) fn measure(seconds: f64, mut run: impl FnMut() -> Result<(), String>) -> Result<Timing, String> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed().as_secs_f64() < seconds || times.len() < RUNS_MIN {
        let started = Instant::now();
        run()?;
        times.push(started.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(Timing { best: times[0], median: times[times.len() / 2] })
}

/// For each contender the best of its runs, and the median of its turns' medians.
///
/// # Errors
/// One cannot go on.
pub(crate) fn take(contenders: &mut [Contender<'_>], rounds: usize, seconds: f64) -> Result<Vec<Timing>, String> {
    let mut turns: Vec<Vec<Timing>> = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (contender, turns) in contenders.iter_mut().zip(&mut turns) {
            std::thread::sleep(PAUSE);
            turns.push((contender.turn)(seconds).map_err(|error| format!("{}: {error}", contender.name))?);
        }
    }
    Ok(turns.iter().map(|turns| together(turns)).collect())
}

fn together(turns: &[Timing]) -> Timing {
    let mut medians: Vec<f64> = turns.iter().map(|turn| turn.median).collect();
    medians.sort_by(f64::total_cmp);
    let best = turns.iter().map(|turn| turn.best).fold(f64::INFINITY, f64::min);
    Timing { best, median: medians[medians.len() / 2] }
}
