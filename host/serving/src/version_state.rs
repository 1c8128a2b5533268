//! The states of a version.

/// The state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It is being loaded.
    Loading,
    /// It serves.
    Ready,
    /// Another version has replaced it. Earlier requests finish here.
    Draining,
    /// Its files exist and it is not loaded.
    Unloaded,
    /// It could not be loaded, and is not retried until its files change.
    Failed,
}

impl VersionState {
    /// Every state.
    pub const ALL: [VersionState; 5] = [
        VersionState::Loading,
        VersionState::Ready,
        VersionState::Draining,
        VersionState::Unloaded,
        VersionState::Failed,
    ];

    /// Returns the state's public name.
    pub const fn name(self) -> &'static str {
        match self {
            VersionState::Loading => "LOADING",
            VersionState::Ready => "READY",
            VersionState::Draining => "DRAINING",
            VersionState::Unloaded => "UNLOADED",
            VersionState::Failed => "FAILED",
        }
    }
}
