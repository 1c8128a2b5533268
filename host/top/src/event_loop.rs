//! Runs the view: events of the terminal, of the servers and of the system change the state, and the screen is drawn when
//! it changed.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratatui::crossterm::event::{self, Event};

use crate::documents::RefreshDocument;
use crate::history_thread::HistoryThread;
use crate::host_source::{HostSample, HostSource};
use crate::key_actions::action_of;
use crate::palette::TopPalette;
use crate::poller::{HostPoller, SampleSink};
use crate::prometheus_history::SeriesHistory;
use crate::recording::{RecordingError, RecordingFile};
use crate::screen::draw_screen;
use crate::system_signals::{SystemSignal, watch_signals};
use crate::terminal_session::TerminalSession;
use crate::transport::{ServerTransport, TransportError};
use crate::view_state::{KeyEffect, TopOverlay, TopState};

/// Where the figures come from.
pub struct TopSources {
    /// The servers, in the order of the state's URLs.
    pub hosts: Vec<Box<dyn ServerTransport>>,
    /// A Prometheus server with the past of the series.
    pub prometheus: Option<Box<dyn ServerTransport>>,
    /// The time between refreshes.
    pub interval: Duration,
    /// The number of refreshes after which the view ends; `None` for no end.
    pub count: Option<u64>,
    /// The file to which refreshes are appended.
    pub recording: Option<RecordingFile>,
}

/// A reason why the view ended early.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The terminal, or the system.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
    /// The recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// How the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopEnd {
    /// The user ended it, or all refreshes are done.
    Finished,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

/// What the loop waits for.
enum LoopEvent {
    Terminal(Event),
    /// The terminal cannot be read any more.
    InputEnded(io::Error),
    Sample(usize, HostSample),
    History(Result<SeriesHistory, TransportError>),
    Signal(SystemSignal),
}

#[derive(Clone)]
struct LoopSink(Sender<LoopEvent>);

impl SampleSink for LoopSink {
    fn send(&self, host: usize, sample: HostSample) -> bool {
        self.0.send(LoopEvent::Sample(host, sample)).is_ok()
    }
}

/// Shows servers until the user ends the view.
///
/// # Errors
/// The terminal cannot be used, or the recording cannot be written.
pub fn show_servers(state: TopState, sources: TopSources, palette: TopPalette) -> Result<TopEnd, TopError> {
    let (sender, events) = channel();
    let live = LiveServers::start(sources, &state, &sender)?;
    run(state, Some(live), palette, &sender, &events)
}

/// Shows a recording until the user ends the view.
///
/// # Errors
/// The terminal cannot be used.
pub fn show_recording(state: TopState, palette: TopPalette) -> Result<TopEnd, TopError> {
    let (sender, events) = channel();
    run(state, None, palette, &sender, &events)
}

/// Passes each refresh to `print`, until it fails or all are done.
///
/// # Errors
/// A thread cannot be started, or the recording cannot be written.
pub fn print_refreshes(
    state: &TopState,
    sources: TopSources,
    mut print: impl FnMut(&RefreshDocument),
) -> Result<(), TopError> {
    let (sender, events) = channel();
    let mut live = LiveServers::start(sources, state, &sender)?;
    loop {
        let wait = live.next_at.saturating_duration_since(Instant::now());
        let refresh = match events.recv_timeout(wait) {
            Ok(LoopEvent::Sample(host, sample)) => live.record(host, &sample)?,
            Ok(_) => None,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let late = live.finish()?;
                live.begin(state);
                late
            }
        };
        refresh.iter().for_each(&mut print);
        if live.is_over() {
            return Ok(());
        }
    }
}

/// The servers, and when they are polled.
struct LiveServers {
    poller: HostPoller,
    interval: Duration,
    next_at: Instant,
    remaining: Option<u64>,
    recording: Option<RecordingFile>,
    history: Option<HistoryThread>,
}

impl LiveServers {
    fn start(sources: TopSources, state: &TopState, sender: &Sender<LoopEvent>) -> Result<LiveServers, TopError> {
        let hosts = sources.hosts.into_iter().map(|host| (host.url().to_owned(), HostSource::new(host))).collect();
        let poller = HostPoller::start(hosts, &LoopSink(sender.clone()))?;
        let urls = state.host_urls();
        let pass = sender.clone();
        let pass = move |history| pass.send(LoopEvent::History(history)).is_ok();
        let history = sources.prometheus.map(|prometheus| HistoryThread::start(prometheus, urls, pass));
        Ok(LiveServers {
            poller,
            interval: sources.interval,
            next_at: Instant::now(),
            remaining: sources.count,
            recording: sources.recording,
            history: history.transpose()?,
        })
    }

    /// Begins a refresh, and requests the history of visible times that are not known yet.
    fn begin(&mut self, state: &TopState) {
        self.next_at = Instant::now() + self.interval;
        let (start, _) = state.window.bounds_ms(unix_ms());
        self.poller.begin(&state.needed_series(), start);
        if let Some(history) = &mut self.history {
            history.request_from(start, unix_ms());
        }
    }

    /// Records an answer, and returns the refresh if it is complete.
    fn record(&mut self, host: usize, sample: &HostSample) -> Result<Option<RefreshDocument>, TopError> {
        self.poller.record(host, &sample.document);
        if self.poller.is_complete() { self.finish() } else { Ok(None) }
    }

    /// Ends the refresh, if one is open.
    fn finish(&mut self) -> Result<Option<RefreshDocument>, TopError> {
        let refresh = self.poller.finish(unix_ms());
        if let Some(refresh) = &refresh {
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(1));
            self.recording.as_mut().map_or(Ok(()), |recording| recording.append(refresh))?;
        }
        Ok(refresh)
    }

    fn is_over(&self) -> bool {
        self.remaining == Some(0)
    }
}

fn run(
    mut state: TopState,
    mut live: Option<LiveServers>,
    palette: TopPalette,
    sender: &Sender<LoopEvent>,
    events: &Receiver<LoopEvent>,
) -> Result<TopEnd, TopError> {
    let signals = sender.clone();
    watch_signals(move |signal| signals.send(LoopEvent::Signal(signal)).is_ok())?;
    let mut session = TerminalSession::start()?;
    start_input(sender.clone())?;
    loop {
        let mut areas = None;
        session.draw(|buffer| areas = Some(draw_screen(&state, palette, buffer)))?;
        state.areas = areas.unwrap_or_default();
        // Everything that happened meanwhile is drawn at once.
        let mut event = wait_for_event(events, live.as_ref());
        loop {
            let ended = match event {
                Some(event) => handle(event, &mut state, live.as_mut(), &mut session)?,
                None => tick(&mut state, live.as_mut())?,
            };
            if let Some(end) = ended.or(live.as_ref().filter(|live| live.is_over()).map(|_| TopEnd::Finished)) {
                return Ok(end);
            }
            match events.try_recv() {
                Ok(next) => event = Some(next),
                Err(_) => break,
            }
        }
    }
}

/// Returns the next event, or `None` if it is time for a refresh.
fn wait_for_event(events: &Receiver<LoopEvent>, live: Option<&LiveServers>) -> Option<LoopEvent> {
    match live {
        Some(live) => events.recv_timeout(live.next_at.saturating_duration_since(Instant::now())).ok(),
        None => events.recv().ok(),
    }
}

/// Begins the next refresh. Servers that have not answered the last one are marked.
fn tick(state: &mut TopState, live: Option<&mut LiveServers>) -> Result<Option<TopEnd>, TopError> {
    let Some(live) = live else { return Ok(Some(TopEnd::Finished)) };
    if let Some(late) = live.finish()? {
        for (host, document) in late.hosts.iter().enumerate().filter(|(_, document)| !document.answered) {
            state.add_sample(host, HostSample { document: document.clone(), recorded: Vec::new() }, late.at_ms);
        }
    }
    live.begin(state);
    Ok(None)
}

fn handle(
    event: LoopEvent,
    state: &mut TopState,
    live: Option<&mut LiveServers>,
    session: &mut TerminalSession,
) -> Result<Option<TopEnd>, TopError> {
    match event {
        LoopEvent::Terminal(event) => {
            let is_typing = matches!(state.overlay, Some(TopOverlay::Picker(_)));
            let action = action_of(&event, is_typing);
            match action.map_or(KeyEffect::Draw, |action| state.apply(action)) {
                KeyEffect::Quit => return Ok(Some(TopEnd::Finished)),
                KeyEffect::Suspend => session.suspend()?,
                KeyEffect::Refresh => return tick(state, live).map(|end| end.filter(|_| !state.is_replay())),
                KeyEffect::Draw => {}
            }
        }
        LoopEvent::InputEnded(error) => return Err(error.into()),
        LoopEvent::Sample(host, sample) => {
            if let Some(live) = live {
                live.record(host, &sample)?;
            }
            state.add_sample(host, sample, unix_ms());
        }
        LoopEvent::History(Ok(history)) => state.add_history(&history),
        LoopEvent::History(Err(error)) => state.notice = Some(format!("Prometheus: {error}")),
        LoopEvent::Signal(SystemSignal::Terminate) => return Ok(Some(TopEnd::Terminated)),
        LoopEvent::Signal(SystemSignal::Interrupt) => return Ok(Some(TopEnd::Interrupted)),
        LoopEvent::Signal(SystemSignal::Continue) => session.resume()?,
    }
    Ok(None)
}

/// Starts the thread that reads the terminal.
fn start_input(sender: Sender<LoopEvent>) -> io::Result<()> {
    let read = move || {
        loop {
            let event = match event::read() {
                Ok(event) => LoopEvent::Terminal(event),
                Err(error) => LoopEvent::InputEnded(error),
            };
            let is_last = matches!(event, LoopEvent::InputEnded(_));
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("terminal".to_owned()).spawn(read).map(drop)
}

/// Returns the current time in Unix milliseconds.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
