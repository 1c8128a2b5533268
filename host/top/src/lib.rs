//! The live view of servers in a terminal, `saggar top`: jobs, models, devices, and charts of their series.
//!
//! Each refresh polls every server in parallel ([`host_source`], [`documents`]) through an interface that the command line
//! implements ([`transport`]). The state of the screen is a function of refreshes, keys and clicks ([`view_state`]), the
//! screen is a function of the state ([`screen`]), and one loop connects them ([`event_loop`]).

pub mod documents;
pub mod event_loop;
mod history_thread;
mod host_source;
mod key_actions;
mod metric_rates;
mod metrics_text;
pub mod palette;
mod poll_request;
mod poller;
mod prometheus_history;
mod quantity_text;
mod recorded_series;
pub mod recording;
mod screen;
mod screen_areas;
pub mod series_name;
mod series_picker;
mod series_store;
mod server_history;
mod system_signals;
mod table_layout;
pub mod terminal_session;
mod time_window;
pub mod top_view;
pub mod transport;
pub mod value_range;
pub mod view_state;
