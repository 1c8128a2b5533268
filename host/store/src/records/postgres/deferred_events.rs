//! Events that wait for the end of their transaction.

use std::cell::RefCell;

use crate::records::session::NewEvent;

/// The events of an open transaction, as they are passed to the function `record_events` of the schema: elements of a JSON
/// array, separated by commas.
#[derive(Debug, Default)]
pub(super) struct DeferredEvents(RefCell<String>);

impl DeferredEvents {
    /// Adds an event.
    pub(super) fn add(&self, event: &NewEvent<'_>) {
        // PostgreSQL cannot store NUL in a text, and JSON would hide it from `values`.
        let text = event.text.replace('\0', "\u{fffd}");
        let event = serde_json::to_string(&NewEvent { text: &text, ..*event }).expect("an event is plain data");
        let mut events = self.0.borrow_mut();
        if !events.is_empty() {
            events.push(',');
        }
        events.push_str(&event);
    }

    /// Takes the events as a JSON array, or returns `None` if no event waits.
    pub(super) fn take(&self) -> Option<String> {
        let events = self.0.take();
        (!events.is_empty()).then(|| format!("[{events}]"))
    }

    /// Forgets the events of a transaction that was rolled back.
    pub(super) fn clear(&self) {
        self.0.take();
    }
}
