//! JupyterLab for notebook jobs: its environment of pinned packages, its sandbox, its process and its activity.
//!
//! A worker starts one [`NotebookServer`] and asks for its activity; the HTTP server forwards requests to its Unix socket
//! ([`socket`]). What runs in a notebook is the user's own code in a sandbox of bubblewrap ([`sandbox`]), not a plugin.
//! Deliberately elsewhere: the life of the job, its outputs and its log (`jobs`), and who can reach it (`serve`).

mod activity;
mod client_files;
mod environment;
mod error;
mod folders;
mod idle_monitor;
mod lab_settings;
pub mod limits;
mod memory_group;
mod memory_use;
mod notebook_server;
pub mod sandbox;
pub mod socket;
mod token;

pub use activity::NotebookActivity;
pub use environment::{JUPYTERLAB_VERSION, find_or_install, is_installed};
pub use error::NotebookError;
pub use folders::NotebookFolders;
pub use idle_monitor::{IdleAction, IdleMonitor};
pub use memory_group::MemoryGroup;
pub use memory_use::resident_bytes;
pub use notebook_server::{NotebookServer, NotebookSettings, base_path, lab_path};
pub use token::NotebookToken;
