//! The trace context of W3C: which trace a request belongs to, and which span caused it.
//!
//! Source: Trace Context, W3C Recommendation of 23 November 2021, <https://www.w3.org/TR/trace-context-1/>.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::limits::{TRACESTATE_BYTES_MAX, TRACESTATE_MEMBERS_MAX};

/// The length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;
/// The flag of a trace that its caller may have recorded.
const SAMPLED: u8 = 1;

/// The ID of a trace. Not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The ID of a span. Not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Returns a random ID.
    pub fn random() -> TraceId {
        TraceId(random_bytes())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// Returns a random ID.
    pub fn random() -> SpanId {
        SpanId(random_bytes())
    }

    /// Returns the ID of the span with this name in a trace, always the same. So a process that starts again continues the
    /// spans that it has begun.
    pub fn derived(trace: TraceId, name: &str) -> SpanId {
        let digest = Sha256::new().chain_update(trace.0).chain_update(name.as_bytes()).finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        // A digest that begins with 64 zero bits was never seen.
        SpanId(if id == [0; 8] { [1; 8] } else { id })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel gives so few bytes in one call, and only fails without a random source.
    let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    if bytes == [0; N] { [1; N] } else { bytes }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A position in a trace: the trace, and the span that causes what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// What tracing systems pass on to each other, unchanged, or empty.
    pub state: String,
}

impl TraceContext {
    /// Parses the values of the headers `traceparent` and `tracestate`. Returns `None` if there is not exactly one valid
    /// `traceparent`; the request then begins a trace. A `tracestate` that is not valid is dropped alone.
    pub fn parse<'a>(
        mut parents: impl Iterator<Item = &'a [u8]>,
        states: impl Iterator<Item = &'a [u8]>,
    ) -> Option<TraceContext> {
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let (trace, span, flags) = parse_traceparent(parent)?;
        let state = parse_tracestate(states).unwrap_or_default();
        Some(TraceContext { trace, span, is_sampled: flags & SAMPLED != 0, state })
    }

    /// Parses a `traceparent`, as [`TraceContext::traceparent`] formats it.
    pub fn from_traceparent(text: &str) -> Option<TraceContext> {
        TraceContext::parse(std::iter::once(text.as_bytes()), std::iter::empty())
    }

    /// Formats the header `traceparent`, in version 00.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    /// Returns the position after another span of the same trace.
    #[must_use]
    pub fn at_span(&self, span: SpanId) -> TraceContext {
        TraceContext { span, ..self.clone() }
    }
}

fn parse_traceparent(value: &[u8]) -> Option<(TraceId, SpanId, u8)> {
    let value = value.trim_ascii();
    let dashes = [2, 35, 52].iter().all(|&at| value.get(at) == Some(&b'-'));
    let [version] = parse_hex::<1>(value.get(..2)?)?;
    // A later version can have further members after a dash.
    let fits = match version {
        0 => value.len() == TRACEPARENT_BYTES,
        0xff => false,
        _ => matches!(value.get(TRACEPARENT_BYTES), None | Some(b'-')),
    };
    if !dashes || !fits {
        return None;
    }
    let trace = parse_hex::<16>(value.get(3..35)?).filter(|id| *id != [0; 16])?;
    let span = parse_hex::<8>(value.get(36..52)?).filter(|id| *id != [0; 8])?;
    let [flags] = parse_hex::<1>(value.get(53..55)?)?;
    Some((TraceId(trace), SpanId(span), flags))
}

/// Parses lower-case hexadecimal digits.
fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Joins the members of all headers. Returns `None` if one is not valid or they are too many or too long.
fn parse_tracestate<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for header in headers {
        let text = std::str::from_utf8(header).ok()?;
        for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|it| !it.is_empty()) {
            let (key, value) = member.split_once('=')?;
            let repeated = members.iter().any(|other| other.split_once('=').is_some_and(|(before, _)| before == key));
            if !is_state_key(key) || !is_state_value(value) || repeated {
                return None;
            }
            members.push(member);
        }
    }
    let joined = members.join(",");
    (members.len() <= TRACESTATE_MEMBERS_MAX && joined.len() <= TRACESTATE_BYTES_MAX).then_some(joined)
}

fn is_state_key(key: &str) -> bool {
    let rest = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
    let part = |part: &str, most: usize, digit_first: bool| {
        let first = part.bytes().next();
        let begins = first.is_some_and(|byte| byte.is_ascii_lowercase() || (digit_first && byte.is_ascii_digit()));
        begins && part.len() <= most && part.bytes().all(rest)
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241, true) && part(system, 14, false),
        None => part(key, 256, false),
    }
}

fn is_state_value(value: &str) -> bool {
    let printable = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    !value.is_empty() && value.len() <= 256 && value.bytes().all(printable) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(parents: &[&str], states: &[&str]) -> Option<TraceContext> {
        TraceContext::parse(parents.iter().map(|it| it.as_bytes()), states.iter().map(|it| it.as_bytes()))
    }

    #[test]
    fn a_valid_context_is_parsed_and_formatted_alike() {
        let context = parse(&[PARENT], &["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE , 1a@b=x"]).unwrap();
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.state, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,1a@b=x");
        assert!(context.is_sampled);
        let unsampled = parse(&[&PARENT.replace("-01", "-00")], &[]).unwrap();
        assert!(!unsampled.is_sampled);
        // Unknown flags are not handed on.
        assert!(parse(&[&PARENT.replace("-01", "-03")], &[]).unwrap().traceparent().ends_with("-01"));
        let later = parse(&[&PARENT.replacen("00", "01", 1)], &[]).unwrap();
        assert_eq!(later.traceparent(), PARENT);
        assert!(parse(&[&format!("{}-more", PARENT.replacen("00", "01", 1))], &[]).is_some());
    }

    #[test]
    fn malformed_contexts_are_refused() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let upper = PARENT.to_uppercase();
        let longer = format!("{PARENT}-00");
        let unknown = format!("{}.", PARENT.replacen("00", "01", 1));
        let invalid_version = PARENT.replacen("00", "ff", 1);
        let no_dash = PARENT.replace("-b7", "_b7");
        for bad in
            ["", "00", &zero_trace, &zero_span, &upper, &longer, &unknown, &invalid_version, &no_dash, &PARENT[..54]]
        {
            assert_eq!(parse(&[bad], &[]), None, "{bad}");
        }
        assert_eq!(parse(&[], &["a=b"]), None);
        assert_eq!(parse(&[PARENT, PARENT], &[]), None, "two parents");
        assert_eq!(TraceContext::parse(std::iter::once(&b"\xff\xfe"[..]), std::iter::empty()), None);
    }

    #[test]
    fn a_malformed_state_is_dropped_alone() {
        let long = format!("a={}", "x".repeat(257));
        let many: String = (0..33).map(|at| format!("k{at}=v,")).collect();
        for bad in ["novalue", "UPPER=1", "a=1,a=2", "a=b=c", "a=\u{e9}", &long, &many, "=x", "a="] {
            let context = parse(&[PARENT], &[bad]).unwrap();
            assert_eq!(context.state, "", "{bad}");
        }
    }

    #[test]
    fn ids_are_random_or_follow_from_the_name() {
        assert_ne!(TraceId::random(), TraceId::random());
        assert_ne!(SpanId::random(), SpanId::random());
        let trace = TraceId::random();
        assert_eq!(SpanId::derived(trace, "job 7"), SpanId::derived(trace, "job 7"));
        assert_ne!(SpanId::derived(trace, "job 7"), SpanId::derived(trace, "job 8"));
    }
}
