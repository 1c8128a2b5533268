//! Which traces are recorded, as `OTEL_TRACES_SAMPLER` says.

use crate::trace_context::{TraceContext, TraceId};

/// A sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSampler {
    /// Whether the caller's decision is followed if there is one.
    pub follows_parent: bool,
    /// The share of the other traces that are recorded, from 0 to 1.
    pub ratio: f64,
}

impl Default for TraceSampler {
    /// Returns OpenTelemetry's default: the caller's decision, else every trace.
    fn default() -> TraceSampler {
        TraceSampler { follows_parent: true, ratio: 1.0 }
    }
}

impl TraceSampler {
    /// Returns the sampler with a name of OpenTelemetry. `argument` is the share of the samplers by ratio.
    ///
    /// # Errors
    /// Returns what is expected instead.
    pub fn parse(name: &str, argument: Option<&str>) -> Result<TraceSampler, String> {
        let (follows_parent, base) = match name.strip_prefix("parentbased_") {
            Some(base) => (true, base),
            None => (false, name),
        };
        let ratio = match base {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let given = argument.unwrap_or("1.0");
                let ratio = given.trim().parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                ratio.ok_or_else(|| format!("OTEL_TRACES_SAMPLER_ARG={given}: expected a number from 0 to 1"))?
            }
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER={name}: expected always_on, always_off or traceidratio, alone or after \
                     parentbased_"
                ));
            }
        };
        Ok(TraceSampler { follows_parent, ratio })
    }

    /// Returns whether a trace is recorded. `parent` is the context that its caller sent.
    pub fn is_sampled(&self, trace: TraceId, parent: Option<&TraceContext>) -> bool {
        match parent.filter(|_| self.follows_parent) {
            Some(parent) => parent.is_sampled,
            None => is_in_share(trace, self.ratio),
        }
    }
}

/// Returns whether the trace is in a share of all traces. Every process decides alike, by the last 56 bits, which are
/// random.
fn is_in_share(trace: TraceId, ratio: f64) -> bool {
    let mut bytes = [0; 8];
    bytes[1..].copy_from_slice(&trace.bytes()[9..]);
    let share = u64::from_be_bytes(bytes) as f64 / (1u64 << 56) as f64;
    share < ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_of_opentelemetry_are_parsed() {
        let parse = |name, argument| TraceSampler::parse(name, argument).map(|it| (it.follows_parent, it.ratio));
        assert_eq!(parse("always_on", None), Ok((false, 1.0)));
        assert_eq!(parse("parentbased_always_off", None), Ok((true, 0.0)));
        assert_eq!(parse("parentbased_traceidratio", Some("0.25")), Ok((true, 0.25)));
        assert_eq!(parse("traceidratio", None), Ok((false, 1.0)));
        for (name, argument) in [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("NaN"))] {
            assert!(parse(name, argument).unwrap_err().contains("expected"), "{name}");
        }
    }

    #[test]
    fn the_share_of_recorded_traces_is_the_ratio_and_a_parent_decides_first() {
        let sampler = TraceSampler { follows_parent: true, ratio: 0.25 };
        let sampled = (0..4000).filter(|_| sampler.is_sampled(TraceId::random(), None)).count();
        assert!((800..1200).contains(&sampled), "{sampled}");
        let parent = TraceContext::from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").unwrap();
        let always = TraceSampler { follows_parent: false, ratio: 1.0 };
        assert!(!TraceSampler::default().is_sampled(parent.trace, Some(&parent)));
        assert!(always.is_sampled(parent.trace, Some(&parent)));
    }
}
