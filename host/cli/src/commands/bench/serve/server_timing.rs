//! The phases of a prediction in the server, from the header `Server-Timing` of its answer.

use ureq::http::HeaderMap;

/// The header. Over gRPC it is initial metadata.
const SERVER_TIMING: &str = "server-timing";

/// The phases, in their order. `total` is the whole time in the server.
pub(super) const PHASES: [&str; 6] = ["read", "decode", "queue", "compute", "encode", "total"];

/// The seconds of each of [`PHASES`]; `None` if the server does not report the phase.
pub(super) type PhaseSeconds = [Option<f64>; PHASES.len()];

/// Returns the phases of an answer.
pub(super) fn read_phases(headers: &HeaderMap) -> PhaseSeconds {
    let mut phases = [None; PHASES.len()];
    let text = headers.get(SERVER_TIMING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    for entry in text.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let duration = parts.find_map(|part| part.strip_prefix("dur=")?.parse::<f64>().ok());
        let duration = duration.filter(|milliseconds| milliseconds.is_finite() && *milliseconds >= 0.0);
        if let Some(at) = PHASES.iter().position(|phase| *phase == name) {
            phases[at] = duration.map(|milliseconds| milliseconds / 1e3);
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderValue;

    use super::*;

    #[test]
    fn phases_are_read_and_anything_else_is_ignored() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(SERVER_TIMING, HeaderValue::from_static(text));
            read_phases(&headers)
        };
        let phases = read("read;dur=1, queue;dur=0.5, cache;desc=\"hit\", compute;desc=x;dur=250, total;dur=-1");
        assert_eq!(phases, [Some(0.001), None, Some(0.0005), Some(0.25), None, None]);
        assert_eq!(read("compute"), [None; 6]);
        assert_eq!(read_phases(&HeaderMap::new()), [None; 6]);
    }
}
