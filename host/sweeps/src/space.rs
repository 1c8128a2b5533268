//! Search spaces: the ranges of the searched parameters, and the parameters of each trial.
//!
//! Random values are counter-based (Philox), keyed by the sweep's seed, the trial's number and the parameter's position.
//! The parameters of a trial depend on nothing else, so they are the same whenever and in whichever order trials start.

use std::collections::BTreeMap;
use std::fmt;

use saggar_tensor::interp::philox4x32_10;
use serde_json::{Map, Value};

use crate::error::{RangeError, SweepSpecError};
use crate::limits::{PARAMETERS_MAX, RANGE_BYTES_MAX, TRIALS_MAX, VALUES_MAX};

/// Significant decimal digits of a drawn number, so that the number that is shown is the one that was used.
const DIGITS: usize = 6;

/// The values that a parameter can have.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterRange {
    /// Numbers whose logarithms are uniformly distributed: `log(1e-4,1e-1)`.
    Log {
        /// The minimum, above 0.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// Uniformly distributed numbers: `uniform(0,0.9)`.
    Uniform {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// Whole numbers, bounds included: `int(1,8)`.
    Int {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
    /// Listed values: `choice(sgd,adam)` or `0.1,0.01`.
    Choice(Vec<Value>),
}

impl ParameterRange {
    /// Parses a range. A listed value is JSON if it parses as JSON, else text.
    ///
    /// # Errors
    /// Returns what is wrong and what is expected.
    pub fn parse(text: &str) -> Result<ParameterRange, RangeError> {
        if text.len() > RANGE_BYTES_MAX {
            return Err(RangeError::Bytes { bytes: text.len() });
        }
        let text = text.trim();
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        let Some((name, rest)) = text.split_once('(').filter(|(name, _)| is_name(name)) else {
            return parse_choice(text);
        };
        let open = || RangeError::Open { text: text.chars().take(80).collect() };
        let inside = rest.strip_suffix(')').ok_or_else(open)?;
        match name {
            "choice" => parse_choice(inside),
            "int" => {
                let (min, max) = parse_bounds::<i64>("int", "whole numbers", "int(1,8)", inside)?;
                if min < max { Ok(ParameterRange::Int { min, max }) } else { Err(order(min as f64, max as f64)) }
            }
            "uniform" => {
                let (min, max) = finite_bounds("uniform", "numbers", "uniform(0,0.9)", inside, f64::NEG_INFINITY)?;
                Ok(ParameterRange::Uniform { min, max })
            }
            "log" => {
                let (min, max) = finite_bounds("log", "numbers above 0", "log(1e-4,1e-1)", inside, 0.0)?;
                Ok(ParameterRange::Log { min, max })
            }
            _ => Err(RangeError::Function { name: name.chars().take(80).collect() }),
        }
    }

    /// Returns the listed values, or `None` if the range is an interval.
    pub fn listed(&self) -> Option<&[Value]> {
        match self {
            ParameterRange::Choice(values) => Some(values),
            ParameterRange::Log { .. } | ParameterRange::Uniform { .. } | ParameterRange::Int { .. } => None,
        }
    }

    /// Returns whether drawn values can be other than whole numbers and listed ones.
    pub fn draws_fractions(&self) -> bool {
        match self {
            ParameterRange::Log { .. } | ParameterRange::Uniform { .. } => true,
            ParameterRange::Int { .. } | ParameterRange::Choice(_) => false,
        }
    }

    /// Returns the listed values, or the two bounds: what a plugin must accept.
    pub fn extremes(&self) -> Vec<Value> {
        match self {
            ParameterRange::Log { min, max } | ParameterRange::Uniform { min, max } => {
                vec![(*min).into(), (*max).into()]
            }
            ParameterRange::Int { min, max } => vec![(*min).into(), (*max).into()],
            ParameterRange::Choice(values) => values.clone(),
        }
    }

    /// Returns the index of a listed value. A number is found even if a reader of JSON returned its neighbour.
    pub(crate) fn index_of(&self, value: &Value) -> Option<usize> {
        let is_near = |one: f64, other: f64| (one - other).abs() <= 4.0 * f64::EPSILON * other.abs();
        let is_same = |listed: &Value| match (listed.as_f64(), value.as_f64()) {
            (Some(one), Some(other)) => is_near(other, one),
            _ => listed == value,
        };
        let values = self.listed()?;
        values.iter().position(|listed| listed == value).or_else(|| values.iter().position(is_same))
    }

    /// Returns a position at which an interval has `value`: the inverse of [`ParameterRange::at`]. It is outside 0 to 1
    /// for a value outside the interval, and `None` for listed values and for what is no number.
    pub(crate) fn position_of(&self, value: &Value) -> Option<f64> {
        let value = value.as_f64()?;
        match self {
            // The halves, because the difference of two bounds can overflow.
            ParameterRange::Uniform { min, max } => Some((value / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0)),
            ParameterRange::Log { min, max } => Some((value.ln() - min.ln()) / (max.ln() - min.ln())),
            ParameterRange::Int { min, max } => {
                let count = (i128::from(*max) - i128::from(*min) + 1) as f64;
                // The middle of the positions that have this value.
                Some((value - *min as f64 + 0.5) / count)
            }
            ParameterRange::Choice(_) => None,
        }
        .filter(|position| position.is_finite())
    }

    /// Returns the nearest number of an interval, with as many digits as drawn numbers have.
    pub(crate) fn nearest(&self, value: f64) -> Value {
        match self {
            ParameterRange::Log { min, max } | ParameterRange::Uniform { min, max } => rounded(value, *min, *max),
            ParameterRange::Int { min, max } => (value.round() as i64).clamp(*min, *max).into(),
            ParameterRange::Choice(_) => value.into(),
        }
    }

    /// Returns the value at `position` from 0 to below 1.
    pub(crate) fn at(&self, position: f64) -> Value {
        match self {
            ParameterRange::Uniform { min, max } => {
                // The difference of two bounds can overflow; the weighted sum cannot.
                rounded(min * (1.0 - position) + max * position, *min, *max)
            }
            ParameterRange::Log { min, max } => {
                let (low, high) = (min.ln(), max.ln());
                rounded((low + position * (high - low)).exp(), *min, *max)
            }
            ParameterRange::Int { min, max } => {
                let count = (i128::from(*max) - i128::from(*min) + 1) as f64;
                let offset = (position * count) as i128;
                let value = (i128::from(*min) + offset).min(i128::from(*max));
                i64::try_from(value).unwrap_or(*max).into()
            }
            ParameterRange::Choice(values) => {
                let index = ((position * values.len() as f64) as usize).min(values.len() - 1);
                values[index].clone()
            }
        }
    }
}

impl fmt::Display for ParameterRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterRange::Log { min, max } => write!(f, "log({min:?},{max:?})"),
            ParameterRange::Uniform { min, max } => write!(f, "uniform({min:?},{max:?})"),
            ParameterRange::Int { min, max } => write!(f, "int({min},{max})"),
            ParameterRange::Choice(values) => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(f, "choice({})", values.join(","))
            }
        }
    }
}

fn order(min: f64, max: f64) -> RangeError {
    RangeError::Order { min, max }
}

fn parse_bounds<T: std::str::FromStr>(
    name: &'static str,
    kind: &'static str,
    example: &'static str,
    inside: &str,
) -> Result<(T, T), RangeError> {
    let wrong = || RangeError::Bounds { name, kind, example, got: inside.chars().take(80).collect() };
    let (min, max) = inside.split_once(',').ok_or_else(wrong)?;
    match (min.trim().parse(), max.trim().parse()) {
        (Ok(min), Ok(max)) => Ok((min, max)),
        _ => Err(wrong()),
    }
}

/// Parses two finite bounds above `above`.
fn finite_bounds(
    name: &'static str,
    kind: &'static str,
    example: &'static str,
    inside: &str,
    above: f64,
) -> Result<(f64, f64), RangeError> {
    let (min, max): (f64, f64) = parse_bounds(name, kind, example, inside)?;
    if !min.is_finite() || !max.is_finite() || min <= above {
        return Err(RangeError::Bounds { name, kind, example, got: inside.chars().take(80).collect() });
    }
    if min < max { Ok((min, max)) } else { Err(order(min, max)) }
}

fn parse_choice(text: &str) -> Result<ParameterRange, RangeError> {
    let mut values: Vec<Value> = Vec::new();
    for word in text.split(',') {
        let word = word.trim();
        if word.is_empty() {
            return Err(RangeError::Empty);
        }
        let value = serde_json::from_str(word).unwrap_or_else(|_| Value::from(word));
        if values.contains(&value) {
            return Err(RangeError::Twice { value: word.chars().take(80).collect() });
        }
        values.push(value);
        if values.len() > VALUES_MAX {
            return Err(RangeError::Values { count: text.split(',').count() });
        }
    }
    Ok(ParameterRange::Choice(values))
}

/// Returns a number of [`DIGITS`] significant digits within bounds.
fn rounded(value: f64, min: f64, max: f64) -> Value {
    let digits = DIGITS - 1;
    let rounded = format!("{value:.digits$e}").parse().unwrap_or(value);
    rounded.clamp(min, max).into()
}

/// Returns a number from 0 to below 1 from random bits, as many as a float's precision has.
pub(crate) fn unit_interval(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// The ranges of the searched parameters, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSpace(BTreeMap<String, ParameterRange>);

impl SearchSpace {
    /// Parses the ranges.
    ///
    /// # Errors
    /// `EmptySpace`; `Parameters`; `Name`; `Range`.
    pub fn parse(ranges: &BTreeMap<String, String>) -> Result<SearchSpace, SweepSpecError> {
        match ranges.len() {
            0 => return Err(SweepSpecError::EmptySpace),
            count if count > PARAMETERS_MAX => return Err(SweepSpecError::Parameters { count }),
            _ => {}
        }
        let is_name = |name: &str| {
            (1..=63).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let parse = |(name, text): (&String, &String)| {
            if !is_name(name) {
                return Err(SweepSpecError::Name { name: name.chars().take(80).collect() });
            }
            let range = ParameterRange::parse(text);
            let range = range.map_err(|source| SweepSpecError::Range { parameter: name.clone(), source })?;
            Ok((name.clone(), range))
        };
        ranges.iter().map(parse).collect::<Result<_, _>>().map(SearchSpace)
    }

    /// Returns the ranges by name.
    pub fn ranges(&self) -> &BTreeMap<String, ParameterRange> {
        &self.0
    }

    /// Returns the number of combinations of listed values.
    ///
    /// # Errors
    /// `NotListed` if a range is an interval; `Trials` if there are more than a sweep can have.
    pub fn combination_count(&self) -> Result<u32, SweepSpecError> {
        let mut count = 1_u64;
        for (name, range) in &self.0 {
            let not_listed = || SweepSpecError::NotListed { parameter: name.clone(), range: range.to_string() };
            count = count.saturating_mul(range.listed().ok_or_else(not_listed)?.len() as u64);
        }
        match u32::try_from(count) {
            Ok(count) if count <= TRIALS_MAX => Ok(count),
            _ => Err(SweepSpecError::Trials { count }),
        }
    }

    /// Returns the combination of listed values with this index; the last parameter changes first.
    pub(crate) fn combination(&self, index: u32) -> Map<String, Value> {
        let mut rest = index as usize;
        let mut chosen: Vec<(String, Value)> = Vec::new();
        for (name, range) in self.0.iter().rev() {
            let values = range.listed().unwrap_or_default();
            if let Some(value) = values.get(rest % values.len().max(1)) {
                chosen.push((name.clone(), value.clone()));
            }
            rest /= values.len().max(1);
        }
        chosen.into_iter().rev().collect()
    }

    /// Returns the random parameters of a trial.
    pub(crate) fn draw(&self, seed: u64, trial: u32) -> Map<String, Value> {
        self.draw_again(seed, trial, 0)
    }

    /// Returns the random parameters of a trial that are drawn after `attempt` others.
    pub(crate) fn draw_again(&self, seed: u64, trial: u32, attempt: u32) -> Map<String, Value> {
        let key = [seed as u32, (seed >> 32) as u32];
        let value = |(index, (name, range)): (usize, (&String, &ParameterRange))| {
            let [high, low, ..] = philox4x32_10([trial, index as u32, attempt, 0], key);
            (name.clone(), range.at(unit_interval(high, low)))
        };
        self.0.iter().enumerate().map(value).collect()
    }
}

#[cfg(test)]
mod tests;
