//! The views of the screen.

/// A page of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopView {
    /// The jobs.
    Jobs,
    /// The models.
    Models,
    /// The devices.
    Devices,
    /// Charts of the chosen series.
    Charts,
}

impl TopView {
    /// Every view, in the order of their keys `1` to `4`.
    pub const ALL: [TopView; 4] = [TopView::Jobs, TopView::Models, TopView::Devices, TopView::Charts];

    /// Returns the name on its tab.
    pub fn name(self) -> &'static str {
        match self {
            TopView::Jobs => "jobs",
            TopView::Models => "models",
            TopView::Devices => "devices",
            TopView::Charts => "charts",
        }
    }

    /// Returns its position among all views.
    pub(crate) fn index(self) -> usize {
        TopView::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }
}
