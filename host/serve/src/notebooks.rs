//! Notebooks over the server's own port: requests below `/notebooks/JOB/` go to the JupyterLab of that job, with nothing
//! rewritten, because JupyterLab is started with this path.
//!
//! A browser cannot send a key with such requests, so the notebook's token admits them ([`notebook_access`]). A client with it
//! can run programs in the notebook's sandbox; the server gives it to keys that can submit jobs of the project.

mod notebook_access;
pub(crate) mod protocol;
mod proxy;
mod websocket;
