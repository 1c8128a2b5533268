//! MLflow's browser interface: the files of an installed MLflow, and the routes that they request besides those of the
//! REST interface.
//!
//! The pages address everything relative to their own path, so below `/mlflow/` there are the files, the routes of the
//! REST interface under the name `ajax-api`, and what only the pages use. They work without a key alone: they have no
//! place for one, unless a proxy adds it.
//!
//! Source: the routes of `mlflow.server` 3.17 and the requests of its pages.

mod bulk_history;
mod files;
mod graphql;
mod page_data;
pub(crate) mod protocol;

/// The path below which the pages and their routes are.
const UI_PREFIX: &str = "/mlflow/";
