//! The layer and the source line of the plugin that an error is about.
//!
//! Functions of this crate that can fail are `#[track_caller]`: a chain of them passes the plugin's line down to the
//! call that fails. A closure or a trait object ends such a chain. The line is then one of this crate, which is not
//! recorded, and the next function outside of it calls [`AtCallSite::at_caller`] again.

use std::panic::Location;

use crate::bindings::tensors::ErrorCode;
use crate::error::{Error, Result, SourceLine};

/// Adds the layer and the line to the error of a result.
pub(crate) trait AtCallSite<T>: Sized {
    /// Adds `line`, unless a line is known already or `line` is in this crate.
    fn at(self, line: SourceLine) -> Result<T>;

    /// Adds the line that called the calling function, as [`AtCallSite::at`] does.
    #[track_caller]
    fn at_caller(self) -> Result<T> {
        self.at(Location::caller())
    }

    /// Adds the name of a layer, unless an inner layer is known already, and the line that called the calling function.
    #[track_caller]
    fn in_layer(self, layer: &str) -> Result<T>;
}

impl<T, E: Into<Error>> AtCallSite<T> for std::result::Result<T, E> {
    fn at(self, line: SourceLine) -> Result<T> {
        self.map_err(|error| with_call_site(error.into(), None, line))
    }

    fn in_layer(self, layer: &str) -> Result<T> {
        let line = Location::caller();
        self.map_err(|error| with_call_site(error.into(), Some(layer).filter(|layer| !layer.is_empty()), line))
    }
}

/// Returns the line if it is the plugin's, `None` if it is in this crate.
pub(crate) fn plugin_line(line: SourceLine) -> Option<SourceLine> {
    let directory = file!().strip_suffix("call_site.rs").unwrap_or_default();
    (!line.file().starts_with(directory)).then_some(line)
}

/// Adds the parts to an error that it does not have. Out of line, because every operator of a plugin contains a call.
#[cold]
#[inline(never)]
fn with_call_site(error: Error, layer: Option<&str>, line: SourceLine) -> Error {
    if !is_caused_by_source(&error) {
        return error;
    }
    let (error, known_layer, known_line) = match error {
        Error::At { error, layer, line } => (error, layer, line),
        other => (Box::new(other), None, None),
    };
    let layer = known_layer.or_else(|| layer.map(str::to_owned));
    match (layer, known_line.or_else(|| plugin_line(line))) {
        (None, None) => *error,
        (layer, line) => Error::At { error, layer, line },
    }
}

/// Returns whether a change of the plugin's source can prevent the error. A job's parameters and a request to stop are
/// not the source's.
fn is_caused_by_source(error: &Error) -> bool {
    !matches!(
        error,
        Error::Stopped
            | Error::UnknownParameter { .. }
            | Error::Parameter { .. }
            | Error::MissingParameter { .. }
            | Error::Json { .. }
            | Error::NotAnObject { .. }
            | Error::Host { code: ErrorCode::Cancelled | ErrorCode::DeviceLost, .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_items() -> Result<()> {
        Err(Error::NoItems)
    }

    #[test]
    fn a_line_of_this_crate_is_not_recorded() {
        assert_eq!(no_items().at_caller(), Err(Error::NoItems));
        assert_eq!(plugin_line(Location::caller()), None);
    }

    #[test]
    fn the_innermost_layer_is_recorded() {
        let error = no_items().in_layer("decoder/query").in_layer("decoder").unwrap_err();
        assert_eq!(error.to_string(), "the dataset has no items to train on (at layer `decoder/query`)");
        assert_eq!(error.cause(), &Error::NoItems);
        assert_eq!(no_items().in_layer("").unwrap_err(), Error::NoItems);
    }

    #[test]
    fn a_request_to_stop_stays_recognizable() {
        assert_eq!(Err::<(), _>(Error::Stopped).in_layer("decoder"), Err(Error::Stopped));
        let host = Error::Host { code: ErrorCode::Cancelled, message: "stopping".to_owned(), place: None };
        assert_eq!(Err::<(), _>(host.clone()).in_layer("decoder"), Err(host));
    }
}
