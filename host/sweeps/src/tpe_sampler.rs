//! The Tree-structured Parzen Estimator: parameters are drawn where good results are more likely than others. Source:
//! Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4. The estimator is the crate `tpe`; each
//! parameter has its own, so relations between parameters are not modelled.
//!
//! The parameters of a trial are a pure function of the seed, the trial's number and the given results. Random numbers
//! are counter-based, as those of [`SearchSpace::draw`]. Ranges are mapped to the interval from 0 to 1, in which the
//! logarithm of a `log` range is uniform, so that the estimator never meets the bounds of a client.

use std::convert::Infallible;

use rand::TryRng;
use saggar_tensor::interp::philox4x32_10;
use serde_json::{Map, Value};
use tpe::{TpeOptimizer, TpeOptimizerBuilder};

use crate::limits::{TPE_CANDIDATES, TPE_GOOD_MAX, TPE_PROPOSALS_MAX, TPE_RANDOM_TRIALS};
use crate::space::{ParameterRange, SearchSpace};

/// The share of the results that count as good. Source: Bergstra et al. 2011, section 6.
const GOOD_SHARE: f64 = 0.15;
/// The largest position below 1.
const POSITION_MAX: f64 = 1.0 - f64::EPSILON;

/// What a trial gave: its parameters, and its score, which is larger for better trials and `-inf` for those without a
/// finite value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrialResult {
    pub(crate) parameters: Map<String, Value>,
    pub(crate) score: f64,
}

/// Returns whether the results suffice for an estimate. Until then, parameters are drawn at random.
pub(crate) fn has_enough_results(results: &[TrialResult]) -> bool {
    finite_count(results) >= TPE_RANDOM_TRIALS
}

fn finite_count(results: &[TrialResult]) -> usize {
    results.iter().filter(|result| result.score.is_finite()).count()
}

/// Returns the parameters of a trial.
///
/// `tried` are the recorded parameters of all earlier trials, also of those that still run. A proposal that equals one of
/// them would train the same again, so it is replaced by a new one of up to [`TPE_PROPOSALS_MAX`] proposals, or of as many
/// random draws. If all were tried, the first proposal is the result.
pub(crate) fn propose(
    space: &SearchSpace,
    seed: u64,
    trial: u32,
    results: &[TrialResult],
    tried: &[&str],
) -> Map<String, Value> {
    let mut optimizers: Vec<TpeOptimizer> = space.ranges().iter().map(|range| optimizer(range, results)).collect();
    let mut proposal = |attempt: u32| -> Map<String, Value> {
        let one = |(index, (name, range)): (usize, (&String, &ParameterRange))| {
            let mut draws = CounterRng::new(seed, trial, index as u32, attempt);
            let Ok(drawn) = optimizers[index].ask(&mut draws);
            (name.clone(), value_at(range, drawn))
        };
        space.ranges().iter().enumerate().map(one).collect()
    };
    let first = proposal(0);
    let is_new = |parameters: &Map<String, Value>| !tried.contains(&recorded_text(parameters).as_str());
    if is_new(&first) {
        return first;
    }
    let proposals = (1..TPE_PROPOSALS_MAX).map(proposal);
    let draws = (1..=TPE_PROPOSALS_MAX).map(|attempt| space.draw_again(seed, trial, attempt));
    proposals.chain(draws).find(is_new).unwrap_or(first)
}

/// Returns the text with which parameters are recorded.
pub(crate) fn recorded_text(parameters: &Map<String, Value>) -> String {
    Value::Object(parameters.clone()).to_string()
}

/// Returns the estimator of one parameter, which minimizes the negative score.
fn optimizer((name, range): (&String, &ParameterRange), results: &[TrialResult]) -> TpeOptimizer {
    let good = (results.len() as f64 * GOOD_SHARE).ceil() as usize;
    // A trial without a finite value is never a good one.
    let good = good.min(finite_count(results)).clamp(1, TPE_GOOD_MAX);
    let mut builder = TpeOptimizerBuilder::new();
    // The best of many candidates of a few listed values is the same value each time, and the others would never be tried
    // again.
    builder.candidates(if range.listed().is_some() { 1 } else { TPE_CANDIDATES });
    // The estimator rounds the number of good results up.
    builder.gamma((good as f64 - 0.5) / results.len().max(1) as f64);
    let (estimator, domain) = match range.listed() {
        Some(values) => (tpe::histogram_estimator(), tpe::categorical_range(values.len())),
        None => (tpe::parzen_estimator(), tpe::range(0.0, 1.0)),
    };
    let domain = domain.expect("a range has a value");
    let mut optimizer = builder.build(estimator, domain).expect("the share is from 0 to 1");
    for result in results {
        // A parameter without a known value is left out by the estimator.
        let drawn = result.parameters.get(name).and_then(|value| drawn_of(range, value)).unwrap_or(f64::NAN);
        let score = if result.score.is_nan() { f64::NEG_INFINITY } else { result.score };
        optimizer.tell(drawn, -score).expect("a position is in its range and a score is not NaN");
    }
    optimizer
}

/// Returns the value of a number that the estimator drew.
fn value_at(range: &ParameterRange, drawn: f64) -> Value {
    match range.listed() {
        Some(values) => values[(drawn as usize).min(values.len() - 1)].clone(),
        None => range.at(drawn),
    }
}

/// Returns the number for which the estimator draws `value`: the index of a listed value, else a position.
fn drawn_of(range: &ParameterRange, value: &Value) -> Option<f64> {
    match range.listed() {
        Some(_) => range.index_of(value).map(|index| index as f64),
        None => range.position_of(value).map(|position| position.clamp(0.0, POSITION_MAX)),
    }
}

/// Random numbers of one proposal for one parameter of one trial.
struct CounterRng {
    key: [u32; 2],
    trial: u32,
    /// The parameter's position and the proposal.
    stream: u32,
    block: u32,
    words: [u32; 4],
    used: usize,
}

impl CounterRng {
    /// The last word of the counter; [`SearchSpace::draw`] has 0.
    const DOMAIN: u32 = 1;

    fn new(seed: u64, trial: u32, parameter: u32, attempt: u32) -> CounterRng {
        let key = [seed as u32, (seed >> 32) as u32];
        CounterRng { key, trial, stream: attempt << 16 | parameter, block: 0, words: [0; 4], used: 4 }
    }

    fn next(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = philox4x32_10([self.trial, self.stream, self.block, CounterRng::DOMAIN], self.key);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

impl TryRng for CounterRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from(self.next()) << 32 | u64::from(self.next()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
