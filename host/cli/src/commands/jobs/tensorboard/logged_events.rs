//! The images and histograms of a job as records of an event file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use saggar_rest::logged_items::LoggedItemDocument;
use saggar_store::LoggedKind;

use super::event_file::{encode_histogram, encode_image};
use crate::client::ApiClient;
use crate::commands::jobs::logged_items::{fetch_items, item_path};
use crate::exit::{self, CliError};

/// The logged items of a job that were written so far. Tables are left out: TensorBoard has none.
pub(super) struct LoggedEvents {
    job: String,
    /// Step, kind and name of each.
    written: BTreeSet<(u64, String, String)>,
    /// What each tag is used for. TensorBoard mixes up values of several kinds with one tag.
    kinds_by_tag: BTreeMap<String, String>,
}

impl LoggedEvents {
    /// Returns the items of `job`. `series` are its series, which are written under their names.
    pub(super) fn new<'a>(job: String, series: impl Iterator<Item = &'a String>) -> LoggedEvents {
        let kinds_by_tag = series.map(|name| (name.clone(), "series".to_owned())).collect();
        LoggedEvents { job, written: BTreeSet::new(), kinds_by_tag }
    }

    /// Calls `write` with the record of each image and histogram that was not written yet.
    pub(super) fn write_new(
        &mut self,
        client: &ApiClient,
        mut write: impl FnMut(Vec<u8>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        // Those of the newest step are requested again, because others of that step can have been logged since.
        let from = self.written.last().map_or(0, |(step, _, _)| *step);
        for query in [format!("&kind=histogram&values=1&from={from}"), format!("&kind=image&from={from}")] {
            for item in fetch_items(&self.job, &query, client)? {
                let key = (item.step, item.kind.clone(), item.name.clone());
                if self.written.contains(&key) {
                    continue;
                }
                let tag = self.claim_tag(&item);
                if let Some(record) = self.record(&tag, &item, client)? {
                    write(record)?;
                }
                self.written.insert(key);
            }
        }
        Ok(())
    }

    /// Returns the tag of an item: its name, or `NAME/KIND` if the name is the tag of something else.
    fn claim_tag(&mut self, LoggedItemDocument { name, kind, .. }: &LoggedItemDocument) -> String {
        let known = self.kinds_by_tag.entry(name.clone()).or_insert_with(|| kind.clone());
        if known == kind { name.clone() } else { format!("{name}/{kind}") }
    }

    fn record(&self, tag: &str, item: &LoggedItemDocument, client: &ApiClient) -> Result<Option<Vec<u8>>, CliError> {
        if let Some(histogram) = &item.histogram {
            return Ok(Some(encode_histogram(tag, item.step, item.logged_ms, histogram)));
        }
        if item.kind != LoggedKind::Image.name() {
            return Ok(None);
        }
        let mut file = Vec::new();
        let read = client.get_stream(&item_path(&self.job, item))?.read_to_end(&mut file);
        read.map_err(|error| CliError::new(exit::UNEXPECTED, "read", format!("{}: {error}", item.name)))?;
        Ok(encode_image(tag, item.step, item.logged_ms, file))
    }
}
