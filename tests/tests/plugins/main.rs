//! Plugins in every language: building, developing, and what they can do.

mod c_plugins;
mod dev_command;
mod dev_python;
mod fetched_plugins;
mod guest_library;
mod http_handlers;
mod javascript_network;
mod javascript_plugins;
mod plugin_errors;
mod plugin_routes;
mod python_handlers;
mod python_plugins;
mod reference_plugins;
mod templates;
