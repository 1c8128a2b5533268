//! `saggar top`: a live view of servers in the terminal, or one JSON object for each refresh.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use saggar_project::TopSection;
use saggar_top::documents::RefreshDocument;
use saggar_top::event_loop::{TopEnd, TopError, TopSources, print_refreshes, show_recording, show_servers};
use saggar_top::palette::TopPalette;
use saggar_top::recording::{RecordingError, RecordingFile, read_recording};
use saggar_top::series_name::{SeriesSelection, SeriesSelector};
use saggar_top::top_view::TopView;
use saggar_top::transport::{ServerTransport, TransportError};
use saggar_top::value_range::RangeSetting;
use saggar_top::view_state::{TopOptions, TopState};
use serde_json::Value;

use super::run::layers::ConfigSource;
use crate::args::{TopArgs, TopViewArg};
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project;
use crate::server::ServerAddress;

/// The time between refreshes if nothing else is set, and the shortest.
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// The visible time if nothing else is set.
const WINDOW: Duration = Duration::from_secs(600);
/// The time within which a server has to answer a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn top(args: TopArgs, server: &ServerAddress, output: CliOutput) -> Result<i32, CliError> {
    let defaults = TopDefaults::resolve(&project::user_config()?.top, server);
    let interval = args.interval.unwrap_or(defaults.interval.0);
    if interval < INTERVAL_MIN {
        return Err(CliError::new(exit::USAGE, "interval", format!("an interval of {interval:?} is too short"))
            .with_hint(format!("the shortest is {INTERVAL_MIN:?}, such as --interval 1s")));
    }
    let range = RangeSetting { low: args.ymin, high: args.ymax, has_outliers: false };
    if let (Some(low), Some(high)) = (range.low, range.high)
        && low >= high
    {
        return Err(CliError::new(exit::USAGE, "range", format!("--ymin {low} is not below --ymax {high}"))
            .with_hint("such as --ymin 0 --ymax 1"));
    }
    let view = match args.view {
        Some(view) => top_view(view),
        None if !args.series.is_empty() => TopView::Charts,
        None => TopView::Jobs,
    };
    let selectors = if args.series.is_empty() { defaults.selectors()? } else { args.series };
    let options = TopOptions {
        hosts: defaults.hosts.0.clone(),
        interval,
        window: args.window.unwrap_or(defaults.window.0),
        selection: SeriesSelection::new(selectors),
        view,
        range,
    };
    if let Some(file) = args.file.or(args.replay) {
        return replay(&file, options, output);
    }
    let prometheus = args.prometheus.or(defaults.prometheus.0);
    let sources = TopSources {
        hosts: defaults.hosts.0.iter().map(|host| host_transport(host, server)).collect::<Result<_, _>>()?,
        prometheus: prometheus.map(|url| prometheus_transport(&url, server)).transpose()?,
        interval,
        count: args.count,
        recording: args.record.map(|path| RecordingFile::open(&path)).transpose().map_err(recording_error)?,
    };
    let state = TopState::new(options);
    if output.json {
        print_refreshes(&state, sources, |refresh| output.print_json_line(refresh)).map_err(top_error)?;
        return Ok(0);
    }
    require_terminal()?;
    show_servers(state, sources, TopPalette::new(output.colour)).map(exit_code).map_err(top_error)
}

/// Shows a recording, or prints its refreshes.
fn replay(file: &Path, options: TopOptions, output: CliOutput) -> Result<i32, CliError> {
    let recording: Vec<RefreshDocument> = read_recording(file).map_err(recording_error)?;
    if output.json {
        recording.iter().for_each(|refresh| output.print_json_line(refresh));
        return Ok(0);
    }
    require_terminal()?;
    let state = TopState::of_recording(options, recording);
    show_recording(state, TopPalette::new(output.colour)).map(exit_code).map_err(top_error)
}

fn require_terminal() -> Result<(), CliError> {
    if std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(CliError::new(exit::USAGE, "no_terminal", "standard output is not a terminal")
        .with_hint("`saggar top --json` prints one JSON object for each refresh"))
}

fn top_view(view: TopViewArg) -> TopView {
    match view {
        TopViewArg::Jobs => TopView::Jobs,
        TopViewArg::Models => TopView::Models,
        TopViewArg::Devices => TopView::Devices,
        TopViewArg::Charts => TopView::Charts,
    }
}

fn exit_code(end: TopEnd) -> i32 {
    match end {
        TopEnd::Finished => 0,
        TopEnd::Interrupted => exit::INTERRUPTED,
        TopEnd::Terminated => exit::TERMINATED,
    }
}

fn top_error(error: TopError) -> CliError {
    match error {
        TopError::Recording(error) => recording_error(error),
        TopError::Terminal(_) => CliError::new(exit::UNEXPECTED, "terminal", error.to_string())
            .with_hint("`saggar top --json` needs no terminal"),
    }
}

fn recording_error(error: RecordingError) -> CliError {
    CliError::invalid(error.to_string()).with_hint("`saggar top --record FILE` writes a recording")
}

/// The defaults of `saggar top`, each with its source.
pub(crate) struct TopDefaults {
    hosts: (Vec<String>, ConfigSource),
    interval: (Duration, ConfigSource),
    window: (Duration, ConfigSource),
    series: (Vec<String>, ConfigSource),
    prometheus: (Option<String>, ConfigSource),
}

impl TopDefaults {
    /// Resolves the defaults: of the user's table `[top]`, else the built-in ones. Servers of the command line and the
    /// environment win over those of the table, and these over the one server of the other commands.
    pub(crate) fn resolve(user: &TopSection, server: &ServerAddress) -> TopDefaults {
        let or_built_in = |value: Option<Duration>, built_in: Duration| match value {
            Some(value) => (value, ConfigSource::User),
            None => (built_in, ConfigSource::BuiltIn),
        };
        let source_of = |is_set: bool| if is_set { ConfigSource::User } else { ConfigSource::BuiltIn };
        let one_source = server.host.as_ref().map_or(ConfigSource::BuiltIn, |(_, source)| source.clone());
        let hosts = match (server.hosts.is_empty(), user.hosts.is_empty()) {
            (false, _) => (server.hosts.clone(), one_source),
            (true, false) => (user.hosts.clone(), ConfigSource::User),
            (true, true) => (vec![server.host().to_owned()], one_source),
        };
        TopDefaults {
            hosts,
            interval: or_built_in(user.interval, INTERVAL),
            window: or_built_in(user.window, WINDOW),
            series: (user.series.clone(), source_of(!user.series.is_empty())),
            prometheus: (user.prometheus.clone(), source_of(user.prometheus.is_some())),
        }
    }

    /// Returns the rows of `saggar config ls`.
    pub(crate) fn config_rows(&self) -> Vec<(&'static str, Value, ConfigSource)> {
        let time = |time: Duration| Value::from(format!("{time:?}"));
        vec![
            ("hosts", self.hosts.0.clone().into(), self.hosts.1.clone()),
            ("interval", time(self.interval.0), self.interval.1.clone()),
            ("window", time(self.window.0), self.window.1.clone()),
            ("series", self.series.0.clone().into(), self.series.1.clone()),
            ("prometheus", self.prometheus.0.clone().into(), self.prometheus.1.clone()),
        ]
    }

    fn selectors(&self) -> Result<Vec<SeriesSelector>, CliError> {
        let parse = |text: &String| text.parse::<SeriesSelector>().map_err(|error| format!("top.series: {error}"));
        self.series.0.iter().map(parse).collect::<Result<_, String>>().map_err(|message| {
            CliError::invalid(message).with_hint("`saggar config ls` shows the value and where it is from")
        })
    }
}

/// A server as the view reaches it.
struct ClientTransport {
    url: String,
    client: ApiClient,
}

impl ServerTransport for ClientTransport {
    fn url(&self) -> &str {
        &self.url
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, TransportError> {
        let parameter = |(name, value): &(&str, &str)| format!("{name}={}", encode_path_segment(value));
        let query: Vec<String> = query.iter().map(parameter).collect();
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        self.client.get_text_within(&path, REQUEST_TIMEOUT).map_err(|error| TransportError {
            is_unreachable: error.exit_code == exit::UNREACHABLE,
            is_missing: error.exit_code == exit::NOT_FOUND,
            message: error.message,
        })
    }
}

fn host_transport(host: &str, server: &ServerAddress) -> Result<Box<dyn ServerTransport>, CliError> {
    let client = server.client_of(host)?;
    Ok(Box::new(ClientTransport { url: host.trim_end_matches('/').to_owned(), client }))
}

/// Returns the transport to a Prometheus server. It does not get the key, which is for saggar servers.
fn prometheus_transport(url: &str, server: &ServerAddress) -> Result<Box<dyn ServerTransport>, CliError> {
    let client = ApiClient::new(url, None, server.ca_file())?;
    Ok(Box::new(ClientTransport { url: url.trim_end_matches('/').to_owned(), client }))
}
