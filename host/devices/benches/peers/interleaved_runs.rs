//! Turns: contenders are measured alternately, so that other load on the machine affects all of them alike.

use std::time::{Duration, Instant};

use crate::measurement_context::BenchContext;
use crate::other_processes::{CpuUsage, OTHERS_MAX};

/// Pause between turns: threads that spin after their work must not take cores from the next contender.
const PAUSE: Duration = Duration::from_millis(100);

/// Minimum runs per turn.
const RUNS_MIN: usize = 2;

/// Approximate stretches of runs per turn.
const STRETCHES: f64 = 5.0;

/// Maximum runs per stretch.
const STRETCH_MAX: u32 = 500;

/// Time for which load is observed to decide whether the machine is quiet.
const WATCHED: Duration = Duration::from_millis(500);

/// Seconds per run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The fastest run.
    pub(crate) best: f64,
    /// The median run.
    pub(crate) median: f64,
}

/// A contender that takes turns.
pub(crate) struct BenchContender<'a> {
    /// Name and version.
    pub(crate) name: String,
    /// Measures for about this many seconds.
    pub(crate) turn: Box<dyn FnMut(f64) -> Result<Timing, String> + 'a>,
}

/// Measures `run` for about this many seconds.
///
/// # Errors
/// Returns the error of `run`.
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

/// Measures like [`measure_runs`], but runs are only submitted and waited for at the end of a stretch. With `each`,
/// every run is waited for.
///
/// # Errors
/// Returns the error of `run` or `wait`.
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

/// The result of all turns.
pub(crate) struct TurnTimings {
    /// For each contender the fastest of its runs, and the median of its turns' medians.
    pub(crate) timings: Vec<Timing>,
    /// The largest share of the cores that other processes took in a turn that counts.
    pub(crate) others: f64,
}

/// Lets all contenders take their turns.
///
/// # Errors
/// Returns the error of the first contender that fails.
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

/// Measures a turn on a quiet machine and returns it with the share that other processes took. If the machine is not
/// quiet in time, returns the quietest turn.
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

/// Returns whether other processes load the machine now.
fn is_noisy() -> bool {
    let watch = CpuUsage::now();
    std::thread::sleep(WATCHED);
    watch.others_since() > OTHERS_MAX
}

/// Returns the best of all turns and the median of their medians.
pub(crate) fn combine_turns(turns: &[Timing]) -> Timing {
    let mut medians: Vec<f64> = turns.iter().map(|turn| turn.median).collect();
    medians.sort_by(f64::total_cmp);
    let best = turns.iter().map(|turn| turn.best).fold(f64::INFINITY, f64::min);
    Timing { best, median: medians[medians.len() / 2] }
}
