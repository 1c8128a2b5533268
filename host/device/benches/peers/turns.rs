//! Contenders take turns, so that what else the machine does meets all of them alike.

use std::time::{Duration, Instant};

use crate::others::{CpuUsage, OTHERS_MAX};
use crate::stage::BenchContext;

/// Between turns: threads that spin for a while after their work must not take the next one's cores.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs in a turn, at least.
const RUNS_MIN: usize = 2;

/// Stretches of runs in a turn, about.
const STRETCHES: f64 = 5.0;

/// Runs in a stretch, at most.
const STRETCH_MAX: u32 = 500;

/// How long the machine is watched before it passes for quiet.
const WATCHED: Duration = Duration::from_millis(500);

/// Seconds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Of the fastest.
    pub(crate) best: f64,
    /// Of the median one.
    pub(crate) median: f64,
}

/// Who takes turns.
pub(crate) struct BenchContender<'a> {
    /// Name and version.
    pub(crate) name: String,
    /// Measures for about so many seconds.
    pub(crate) turn: Box<dyn FnMut(f64) -> Result<Timing, String> + 'a>,
}

/// Measures `run` for about so many seconds.
///
/// # Errors
/// The run's own.
pub(crate) fn measure_runs(seconds: f64, mut run: impl FnMut() -> Result<(), String>) -> Result<Timing, String> {
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

/// As [`measure_runs`], of runs that are only submitted, and waited for at the end of a stretch of them. With `each`, every run is
/// waited for.
///
/// # Errors
/// The run's own, and those of waiting.
pub(crate) fn measure_batched_runs(
    seconds: f64,
    each: bool,
    run: impl Fn() -> Result<(), String>,
    wait: impl Fn() -> Result<(), String>,
) -> Result<Timing, String> {
    let stretch = |runs: u32| -> Result<f64, String> {
        wait()?;
        let begun = Instant::now();
        for _ in 0..runs {
            run()?;
            if each {
                wait()?;
            }
        }
        wait()?;
        Ok(begun.elapsed().as_secs_f64() / f64::from(runs))
    };
    let begun = Instant::now();
    let one = stretch(2)?;
    let runs = if each { 1 } else { ((seconds / STRETCHES / one) as u32).clamp(1, STRETCH_MAX) };
    let mut times = Vec::new();
    while begun.elapsed().as_secs_f64() < seconds || times.len() < RUNS_MIN {
        times.push(stretch(runs)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(Timing { best: times[0], median: times[times.len() / 2] })
}

/// What came out.
pub(crate) struct TurnTimings {
    /// For each contender the best of its runs, and the median of its turns' medians.
    pub(crate) timings: Vec<Timing>,
    /// The largest share of the cores that others took in a turn that counts.
    pub(crate) others: f64,
}

/// Has all take their turns.
///
/// # Errors
/// One cannot go on.
pub(crate) fn take_turns(contenders: &mut [BenchContender<'_>], stage: &BenchContext) -> Result<TurnTimings, String> {
    let mut turns: Vec<Vec<Timing>> = vec![Vec::new(); contenders.len()];
    let mut worst = 0.0_f64;
    let patient_until = Instant::now() + Duration::from_secs(stage.patience);
    for _ in 0..stage.rounds {
        for (contender, turns) in contenders.iter_mut().zip(&mut turns) {
            let (timing, others) = take_quiet_turn(contender, stage.seconds, patient_until)?;
            turns.push(timing);
            worst = worst.max(others);
        }
    }
    Ok(TurnTimings { timings: turns.iter().map(|turns| combine_turns(turns)).collect(), others: worst })
}

/// A turn that others left alone, and how much they took. When patience is at its end, the one that they left alone most.
fn take_quiet_turn(contender: &mut BenchContender<'_>, seconds: f64, until: Instant) -> Result<(Timing, f64), String> {
    let mut quietest: Option<(Timing, f64)> = None;
    loop {
        std::thread::sleep(PAUSE);
        while Instant::now() < until && is_noisy() {}
        let watch = CpuUsage::now();
        let timing = (contender.turn)(seconds).map_err(|error| format!("{}: {error}", contender.name))?;
        let turn = (timing, watch.others_since());
        let best = quietest.filter(|(_, least)| *least <= turn.1).unwrap_or(turn);
        if best.1 <= OTHERS_MAX || Instant::now() >= until {
            return Ok(best);
        }
        quietest = Some(best);
    }
}

/// Whether others have work now.
fn is_noisy() -> bool {
    let watch = CpuUsage::now();
    std::thread::sleep(WATCHED);
    watch.others_since() > OTHERS_MAX
}

/// The best of all, and the median of the medians.
pub(crate) fn combine_turns(turns: &[Timing]) -> Timing {
    let mut medians: Vec<f64> = turns.iter().map(|turn| turn.median).collect();
    medians.sort_by(f64::total_cmp);
    let best = turns.iter().map(|turn| turn.best).fold(f64::INFINITY, f64::min);
    Timing { best, median: medians[medians.len() / 2] }
}
