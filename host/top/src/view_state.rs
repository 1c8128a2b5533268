//! What the screen shows: the servers, the series, and what keys changed. Pure: time and events are arguments.

mod actions;
mod panels;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use actions::KeyEffect;
pub(crate) use panels::SeriesPanel;

use crate::documents::{HostDocument, RefreshDocument};
use crate::host_source::HostSample;
use crate::screen_areas::ScreenAreas;
use crate::series_name::{SeriesKey, SeriesSelection, series_values};
use crate::series_picker::SeriesPicker;
use crate::series_store::{SeriesStore, TimedValue};
use crate::time_window::TimeWindow;
use crate::top_view::TopView;
use crate::value_range::RangeSetting;

/// What the screen shows first.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// The URLs of the servers.
    pub hosts: Vec<String>,
    /// The time between refreshes.
    pub interval: Duration,
    /// The visible time.
    pub window: Duration,
    /// The charted series.
    pub selection: SeriesSelection,
    /// The view.
    pub view: TopView,
    /// The range of every panel.
    pub range: RangeSetting,
}

/// A server as the screen shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostState {
    /// Its last answer.
    pub(crate) document: HostDocument,
    /// Why it does not answer now; the document is then an older one.
    pub(crate) error: Option<String>,
}

/// What is drawn over the view.
#[derive(Clone, Debug)]
pub(crate) enum TopOverlay {
    /// The keys.
    Help,
    /// The choice of series.
    Picker(SeriesPicker),
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct TopState {
    pub(crate) view: TopView,
    pub(crate) interval: Duration,
    pub(crate) window: TimeWindow,
    pub(crate) selection: SeriesSelection,
    pub(crate) overlay: Option<TopOverlay>,
    /// What the user should know about a source besides the servers, such as Prometheus.
    pub(crate) notice: Option<String>,
    /// Where tabs, rows and panels were drawn last.
    pub(crate) areas: ScreenAreas,
    hosts: Vec<HostState>,
    /// The servers when the user paused.
    paused: Option<(Vec<HostState>, u64)>,
    newest_ms: u64,
    store: SeriesStore,
    /// The selected row of each table.
    rows: [usize; 4],
    /// The metric of the table of jobs, if the user chose one.
    metric: Option<String>,
    first_range: RangeSetting,
    ranges: BTreeMap<String, RangeSetting>,
    focus: usize,
    /// The refreshes of a recording, by rising time; empty for live servers.
    recording: Vec<RefreshDocument>,
}

impl TopState {
    /// Returns the state before the first refresh.
    pub fn new(options: TopOptions) -> TopState {
        let host =
            |url: String| HostState { document: HostDocument { host: url, ..HostDocument::default() }, error: None };
        TopState {
            view: options.view,
            interval: options.interval,
            window: TimeWindow::new(options.window),
            selection: options.selection,
            overlay: None,
            notice: None,
            areas: ScreenAreas::default(),
            hosts: options.hosts.into_iter().map(host).collect(),
            paused: None,
            newest_ms: 0,
            store: SeriesStore::default(),
            rows: [0; 4],
            metric: None,
            first_range: options.range,
            ranges: BTreeMap::new(),
            focus: 0,
            recording: Vec::new(),
        }
    }

    /// Returns the state that shows a recording.
    pub fn of_recording(mut options: TopOptions, recording: Vec<RefreshDocument>) -> TopState {
        options.hosts = recording.last().into_iter().flat_map(|last| &last.hosts).map(|it| it.host.clone()).collect();
        let mut state = TopState::new(options);
        for refresh in &recording {
            for (host, document) in refresh.hosts.iter().enumerate().take(state.hosts.len()) {
                state.add_document(host, document, refresh.at_ms);
            }
        }
        state.recording = recording;
        state.show_recorded_time();
        state
    }

    /// Adds what was read of a server at a time, in Unix milliseconds.
    pub(crate) fn add_sample(&mut self, host: usize, sample: HostSample, at_ms: u64) {
        self.add_document(host, &sample.document, at_ms);
        for series in sample.recorded {
            self.store.add_recorded(host, series);
        }
    }

    /// Adds points from before the first refresh.
    pub(crate) fn add_history(&mut self, history: &[(SeriesKey, Vec<TimedValue>)]) {
        history.iter().for_each(|(key, points)| self.store.add_history(key.clone(), points));
    }

    /// Returns every series that has points.
    pub(crate) fn series_keys(&self) -> std::collections::BTreeSet<&SeriesKey> {
        self.store.keys().collect()
    }

    /// Returns what the servers are polled for: the chosen series, and the metric below the table of jobs.
    pub(crate) fn needed_series(&self) -> SeriesSelection {
        self.selection.with_metric(&self.job_metric())
    }

    /// Returns the URLs of the servers.
    pub(crate) fn host_urls(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.document.host.clone()).collect()
    }

    /// Returns the servers as they are shown.
    pub(crate) fn hosts(&self) -> &[HostState] {
        self.paused.as_ref().map_or(&self.hosts, |(hosts, _)| hosts)
    }

    /// Returns the time of the newest refresh that is shown, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.paused.as_ref().map_or(self.newest_ms, |(_, at_ms)| *at_ms)
    }

    /// Returns the start and the end of the visible time, in Unix milliseconds.
    pub(crate) fn visible_ms(&self) -> (u64, u64) {
        self.window.bounds_ms(self.now_ms())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Returns whether the screen shows a recording.
    pub(crate) fn is_replay(&self) -> bool {
        !self.recording.is_empty()
    }

    /// Returns the metric that the table of jobs shows: the chosen one, else `loss`, else the first that a job has.
    pub(crate) fn job_metric(&self) -> String {
        let metrics = self.job_metrics();
        let chosen = self.metric.as_deref().or_else(|| self.selection.first_metric());
        let has = |name: &&str| metrics.iter().any(|metric| metric == name);
        let name = chosen.filter(has).or_else(|| Some("loss").filter(has));
        name.map(str::to_owned).or_else(|| metrics.first().cloned()).unwrap_or_else(|| "loss".to_owned())
    }

    /// Returns the selected row of the table of a view.
    pub(crate) fn selected_row(&self, view: TopView) -> usize {
        self.rows[view.index()].min(self.row_count(view).saturating_sub(1))
    }

    /// Returns the metrics of all jobs, sorted.
    fn job_metrics(&self) -> Vec<String> {
        let jobs = self.hosts().iter().flat_map(|host| &host.document.jobs);
        let names: std::collections::BTreeSet<&String> = jobs.flat_map(|job| job.metrics.keys()).collect();
        names.into_iter().cloned().collect()
    }

    fn row_count(&self, view: TopView) -> usize {
        let count = |host: &HostState| match view {
            TopView::Jobs => host.document.jobs.len(),
            TopView::Models => host.document.models.len(),
            TopView::Devices => host.document.devices.len(),
            TopView::Charts => 0,
        };
        self.hosts().iter().map(count).sum()
    }

    fn add_document(&mut self, host: usize, document: &HostDocument, at_ms: u64) {
        self.newest_ms = self.newest_ms.max(at_ms);
        let Some(state) = self.hosts.get_mut(host) else { return };
        if !document.answered {
            let error = document.error.clone().unwrap_or_else(|| "no answer".to_owned());
            state.error = Some(error);
            return;
        }
        state.error = None;
        state.document.clone_from(document);
        for (key, value) in series_values(host, document) {
            self.store.add_sample(key, at_ms, value);
        }
    }

    /// Shows the tables of a recording at the end of the visible time.
    fn show_recorded_time(&mut self) {
        let (_, end_ms) = self.visible_ms();
        let at = self.recording.partition_point(|refresh| refresh.at_ms <= end_ms).max(1) - 1;
        let Some(refresh) = self.recording.get(at) else { return };
        for (state, document) in self.hosts.iter_mut().zip(&refresh.hosts) {
            state.error = document.error.clone().filter(|_| !document.answered);
            state.document.clone_from(document);
        }
    }
}
