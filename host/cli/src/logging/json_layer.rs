//! Log lines as JSON objects: the time, the level, the message, the fields of the enclosing spans, such as a request's ID,
//! and the fields of the event.

use std::fmt;
use std::io::Write as _;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Writes events as lines of JSON.
pub(super) struct JsonLayer<W> {
    writer: W,
}

/// The fields of a span.
struct SpanFields(Map<String, Value>);

impl<W> JsonLayer<W> {
    pub(super) fn new(writer: W) -> JsonLayer<W> {
        JsonLayer { writer }
    }
}

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Map::new();
        attributes.record(&mut JsonVisitor(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields(fields)) = span.extensions_mut().get_mut::<SpanFields>() {
            values.record(&mut JsonVisitor(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        event.record(&mut JsonVisitor(&mut fields));
        let mut line = Map::new();
        let metadata = event.metadata();
        line.insert("time".to_owned(), format!("{:.6}", jiff::Timestamp::now()).into());
        line.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
        line.insert("target".to_owned(), metadata.target().into());
        line.insert("message".to_owned(), fields.remove("message").unwrap_or_else(|| "".into()));
        // A field of the event has precedence over one of a span, and an inner span over an outer one.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(SpanFields(outer)) = span.extensions().get::<SpanFields>() {
                outer.iter().for_each(|(name, value)| _ = fields.entry(name).or_insert_with(|| value.clone()));
            }
        }
        fields.into_iter().for_each(|(name, value)| _ = line.entry(name).or_insert(value));
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // A log that cannot be written cannot say so.
        let _ = self.writer.make_writer_for(metadata).write_all(text.as_bytes());
    }
}

/// Collects fields as JSON values.
struct JsonVisitor<'f>(&'f mut Map<String, Value>);

impl JsonVisitor<'_> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonVisitor<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct SharedText(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for SharedText {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_the_fields_of_its_spans_and_its_own() {
        let text = SharedText::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::registry().with(JsonLayer::new(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let trace_id: Option<&str> = None;
            let request = tracing::info_span!("request", request_id = %"r-1", step = 1, trace_id);
            let _entered = request.enter();
            tracing::warn!(job = "digits-1", step = 2, loss = 0.5, "a \"line\"\nof text");
        });
        let text = String::from_utf8(text.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut line: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert!(line.remove("time").unwrap().as_str().unwrap().ends_with('Z'));
        assert!(line.remove("target").is_some());
        let expected = serde_json::json!({
            "level": "warn", "message": "a \"line\"\nof text", "job": "digits-1", "step": 2, "loss": 0.5,
            "request_id": "r-1"
        });
        assert_eq!(Value::Object(line), expected);
    }
}
