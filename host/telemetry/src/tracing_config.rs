//! Where spans are sent, and which, as the variables of OpenTelemetry say.
//!
//! Source: OpenTelemetry specification 1.x, "Environment Variable Specification" and "OpenTelemetry Protocol Exporter".

use std::time::Duration;

use crate::limits::{EXPORT_TIME_DEFAULT, SPAN_BATCH_DEFAULT, SPAN_DELAY_DEFAULT, SPAN_QUEUE_DEFAULT, SPAN_QUEUE_MAX};
use crate::sampler::TraceSampler;

/// The path of traces below `OTEL_EXPORTER_OTLP_ENDPOINT`.
const TRACES_PATH: &str = "v1/traces";

/// The configuration of the export of spans.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingConfig {
    /// The URL that spans are posted to.
    pub url: String,
    /// Further headers of these requests.
    pub headers: Vec<(String, String)>,
    /// Maximum time of a request.
    pub timeout: Duration,
    /// The attributes of this process, `service.name` among them.
    pub resource: Vec<(String, String)>,
    /// Which traces are recorded.
    pub sampler: TraceSampler,
    /// Maximum number of spans that wait.
    pub queue_max: usize,
    /// Maximum number of spans in one request.
    pub batch_max: usize,
    /// The time between two requests while fewer spans wait.
    pub delay: Duration,
}

impl TracingConfig {
    /// Reads the variables through `variable`, which returns a variable's value. Returns `None` if no collector is named,
    /// and what was ignored because it is not valid. By OpenTelemetry's rules, an empty variable is one that is not set,
    /// and a variable that is not valid is ignored with a warning.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> (Option<TracingConfig>, Vec<String>) {
        let mut warnings = Vec::new();
        let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let traces_or = |traces: &str, all: &str| get(traces).or_else(|| get(all));
        let is_off = |name: &str, word: &str| get(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        if is_off("OTEL_SDK_DISABLED", "true") || is_off("OTEL_TRACES_EXPORTER", "none") {
            return (None, warnings);
        }
        let own = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let below =
            || get("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}/{TRACES_PATH}", base.trim_end_matches('/')));
        let Some(url) = own.or_else(below) else { return (None, warnings) };
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            warnings
                .push(format!("OTEL_EXPORTER_OTLP_ENDPOINT: `{url}` is no http:// or https:// URL; no spans are sent"));
            return (None, warnings);
        }
        let protocol = traces_or("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL");
        if let Some(other) = protocol.filter(|protocol| protocol != "http/protobuf") {
            let name = "OTEL_EXPORTER_OTLP_PROTOCOL";
            warnings.push(format!(
                "{name}={other}: only http/protobuf is sent; no spans are sent. Collectors take it at port 4318"
            ));
            return (None, warnings);
        }
        let mut whole = |names: &[&str], default: u64| {
            let Some((name, text)) = names.iter().find_map(|name| Some((name, get(name)?))) else { return default };
            text.parse().ok().filter(|&number| number > 0).unwrap_or_else(|| {
                warnings.push(format!("{name}={text}: expected a whole number above 0; {default} is used"));
                default
            })
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let timeout_names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
        let timeout = Duration::from_millis(whole(&timeout_names, ms(EXPORT_TIME_DEFAULT)));
        let delay = Duration::from_millis(whole(&["OTEL_BSP_SCHEDULE_DELAY"], ms(SPAN_DELAY_DEFAULT)));
        let queue_max =
            whole(&["OTEL_BSP_MAX_QUEUE_SIZE"], SPAN_QUEUE_DEFAULT as u64).min(SPAN_QUEUE_MAX as u64) as usize;
        let batch_max =
            whole(&["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"], SPAN_BATCH_DEFAULT as u64).min(queue_max as u64) as usize;
        let headers = traces_or("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let headers = headers.map_or_else(Vec::new, |text| pairs("OTEL_EXPORTER_OTLP_HEADERS", &text, &mut warnings));
        let mut resource = get("OTEL_RESOURCE_ATTRIBUTES")
            .map_or_else(Vec::new, |text| pairs("OTEL_RESOURCE_ATTRIBUTES", &text, &mut warnings));
        if let Some(name) = get("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".to_owned(), "saggar".to_owned()));
        }
        let argument = get("OTEL_TRACES_SAMPLER_ARG");
        let sampler = get("OTEL_TRACES_SAMPLER").map(|name| TraceSampler::parse(&name, argument.as_deref()));
        let sampler = sampler.transpose().unwrap_or_else(|problem| {
            warnings.push(format!("{problem}; parentbased_always_on is used"));
            None
        });
        let sampler = sampler.unwrap_or_default();
        (Some(TracingConfig { url, headers, timeout, resource, sampler, queue_max, batch_max, delay }), warnings)
    }
}

/// Parses `key=value,key=value` with percent-encoded values, as W3C Baggage has them.
fn pairs(name: &str, text: &str, warnings: &mut Vec<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let parsed = pair.split_once('=').map(|(key, value)| (key.trim(), decode_percent(value.trim())));
        match parsed {
            Some((key, Some(value))) if !key.is_empty() => found.push((key.to_owned(), value)),
            // The value can be a secret.
            _ => {
                warnings.push(format!("{name}: a member is not KEY=VALUE with a percent-encoded value, and is ignored"))
            }
        }
    }
    found
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let digits =
            std::str::from_utf8(after.get(..2)?).ok().filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<TracingConfig>, Vec<String>) {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        TracingConfig::from_variables(find)
    }

    #[test]
    fn without_a_collector_there_are_no_spans() {
        assert_eq!(read(&[]), (None, Vec::new()));
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), (None, Vec::new()));
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_SDK_DISABLED", "TRUE")];
        assert_eq!(read(&off), (None, Vec::new()));
    }

    #[test]
    fn every_variable_is_read() {
        let (config, warnings) = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, team = ml"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_SERVICE_NAME", "digits"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=a"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "16"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "64"),
        ]);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expected = TracingConfig {
            url: "http://collector:4318/v1/traces".to_owned(),
            headers: vec![pair("x-key", "a b"), pair("team", "ml")],
            timeout: Duration::from_millis(250),
            resource: vec![pair("zone", "a"), pair("service.name", "digits")],
            sampler: TraceSampler { follows_parent: false, ratio: 0.5 },
            queue_max: 16,
            batch_max: 16,
            delay: Duration::from_millis(100),
        };
        assert_eq!((config, warnings), (Some(expected), Vec::new()));
    }

    #[test]
    fn invalid_variables_are_ignored_with_a_warning() {
        let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        let (config, warnings) = read(&[
            at,
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret,%zz=%zz,a=b"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ]);
        let config = config.unwrap();
        assert_eq!(config.headers, [("a".to_owned(), "b".to_owned())]);
        assert_eq!((config.sampler, config.queue_max), (TraceSampler::default(), SPAN_QUEUE_DEFAULT));
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert!(!warnings.iter().any(|warning| warning.contains("secret")), "{warnings:?}");
        let (config, warnings) = read(&[at, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(config.is_none() && warnings[0].contains("http/protobuf"), "{warnings:?}");
        let (config, warnings) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]);
        assert!(config.is_none() && warnings[0].contains("http://"), "{warnings:?}");
    }
}
