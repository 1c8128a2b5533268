//! `GET /api/v1/jobs/{job}/logged`: lists and returns the images, tables and histograms that a job logged.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_rest::logged_items::{HistogramDocument, LoggedItemDocument, LoggedItemListDocument};
use saggar_store::{LoggedKey, LoggedKind, StoredItem};

use super::query::QueryParameters;
use super::visible_job::VisibleJob;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{LOGGED_ITEMS_ANSWERED_MAX, LOGGED_VALUES_ANSWERED_MAX};

/// What the kinds of items are called, for errors.
const KINDS: &str = "image, table or histogram";

/// The items that a request asks for.
#[derive(Debug, Default)]
struct ItemFilter {
    kind: Option<LoggedKind>,
    name: Option<String>,
    step: Option<u64>,
    from_step: u64,
    after: Option<LoggedKey>,
}

impl ItemFilter {
    fn from_query(parameters: &QueryParameters) -> Result<ItemFilter, ApiError> {
        let kind = parameters.get("kind").map(|text| parse_kind("kind", text)).transpose()?;
        let after = parameters.get("after").map(|text| {
            let expected = "the `next` of an earlier response";
            text.parse().map_err(|()| ApiError::Parameter { name: "after", expected, got: shortened(text) })
        });
        Ok(ItemFilter {
            kind,
            name: parameters.get("name").map(str::to_owned),
            step: parameters.parse("step", "a step")?,
            from_step: parameters.parse("from", "a step")?.unwrap_or(0),
            after: after.transpose()?,
        })
    }

    fn accepts(&self, LoggedKey { step, kind, name }: &LoggedKey) -> bool {
        self.kind.is_none_or(|wanted| wanted == *kind)
            && self.name.as_ref().is_none_or(|wanted| wanted == name)
            && self.step.is_none_or(|wanted| wanted == *step)
            && *step >= self.from_step
    }

    /// Returns the first `limit` items that are asked for, and whether there are more.
    fn page(&self, items: Vec<StoredItem>, limit: usize) -> (Vec<StoredItem>, bool) {
        let is_later = |item: &StoredItem| self.after.as_ref().is_none_or(|after| item.key > *after);
        let wanted = items.into_iter().filter(|item| is_later(item) && self.accepts(&item.key));
        let mut page: Vec<StoredItem> = wanted.take(limit + 1).collect();
        let has_more = page.len() > limit;
        page.truncate(limit);
        (page, has_more)
    }
}

/// Handles `GET /api/v1/jobs/{job}/logged?kind=&name=&step=&from=&values=&limit=&after=`. With `values`, histograms are
/// returned with their bins.
pub(crate) async fn list(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    parameters: QueryParameters,
) -> Result<Json<LoggedItemListDocument>, ApiError> {
    let filter = ItemFilter::from_query(&parameters)?;
    let has_values = parameters.flag("values");
    let max = if has_values { LOGGED_VALUES_ANSWERED_MAX } else { LOGGED_ITEMS_ANSWERED_MAX };
    let limit = parameters.parse("limit", "a number of items from 1")?.unwrap_or(max).clamp(1, max);
    let (page, has_more) = filter.page(app.jobs().list_logged_items(&job.id).await?, limit);
    let next = page.last().filter(|_| has_more).map(|last| last.key.to_string());
    let mut items: Vec<LoggedItemDocument> = page.iter().map(item_document).collect();
    if has_values {
        let is_histogram = |item: &&StoredItem| item.key.kind == LoggedKind::Histogram;
        let keys: Vec<LoggedKey> = page.iter().filter(is_histogram).map(|item| item.key.clone()).collect();
        let files = app.jobs().read_logged_items(&job.id, keys).await?;
        let histograms = items.iter_mut().filter(|item| item.kind == LoggedKind::Histogram.name());
        for (item, file) in histograms.zip(files) {
            item.histogram = file.map(|file| parse_histogram(&file)).transpose()?;
        }
    }
    Ok(Json(LoggedItemListDocument { items, next }))
}

/// Handles `GET /api/v1/jobs/{job}/logged/{step}/{kind}/{name}`: an image as a PNG file, a table or a histogram as JSON.
pub(crate) async fn download(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    Path((_, step, kind, name)): Path<(String, String, String, String)>,
) -> Result<Response, ApiError> {
    let step = step.parse::<u64>().map_err(|_| ApiError::Parameter {
        name: "step",
        expected: "a step",
        got: shortened(&step),
    })?;
    let kind = parse_kind("kind", &kind)?;
    let no_item = || ApiError::NotFound {
        kind: "logged item",
        name: format!("{step}/{}/{}", kind.name(), shortened(&name)),
        hint: format!("`saggar logged {}` lists what the job logged", job.name),
    };
    // A name that no item can have must not become a path.
    let key: LoggedKey = format!("{step}/{}/{name}", kind.name()).parse().map_err(|()| no_item())?;
    let found = app.jobs().read_logged_items(&job.id, vec![key]).await?.pop().flatten();
    let file = found.ok_or_else(no_item)?;
    let headers = [(header::CONTENT_TYPE, kind.media_type()), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, file).into_response())
}

fn item_document(StoredItem { key, bytes, logged_ms }: &StoredItem) -> LoggedItemDocument {
    LoggedItemDocument {
        step: key.step,
        kind: key.kind.name().to_owned(),
        name: key.name.clone(),
        bytes: *bytes,
        logged_ms: *logged_ms,
        histogram: None,
    }
}

fn parse_histogram(file: &[u8]) -> Result<HistogramDocument, ApiError> {
    let damaged = |error: serde_json::Error| ApiError::Internal { cause: format!("a logged histogram: {error}") };
    serde_json::from_slice(file).map_err(damaged)
}

fn parse_kind(name: &'static str, text: &str) -> Result<LoggedKind, ApiError> {
    text.parse().map_err(|()| ApiError::Parameter { name, expected: KINDS, got: shortened(text) })
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use saggar_rest::logged_items::{TableDocument, TableValuesDocument};
    use saggar_store::LoggedItem;
    use saggar_store::logged_items::{ColumnValues, LoggedColumn, LoggedHistogram, LoggedTable};

    use super::*;

    fn stored(keys: &[&str]) -> Vec<StoredItem> {
        let item = |key: &&str| StoredItem { key: key.parse().unwrap(), bytes: 1, logged_ms: 2 };
        keys.iter().map(item).collect()
    }

    fn keys(page: &[StoredItem]) -> Vec<String> {
        page.iter().map(|item| item.key.to_string()).collect()
    }

    #[test]
    fn items_are_filtered_and_paged() {
        let all = ["1/histogram/w", "1/image/a", "2/image/a", "2/image/b/c", "10/image/a", "10/table/t"];
        let page = |filter: ItemFilter, limit| filter.page(stored(&all), limit);
        let (first, more) = page(ItemFilter::default(), 4);
        assert_eq!((keys(&first), more), (all[..4].iter().map(ToString::to_string).collect(), true));
        let after = Some(first.last().unwrap().key.clone());
        let (rest, more) = page(ItemFilter { after, ..ItemFilter::default() }, 4);
        assert_eq!((keys(&rest), more), (vec!["10/image/a".to_owned(), "10/table/t".to_owned()], false));
        let images = ItemFilter { kind: Some(LoggedKind::Image), name: Some("a".to_owned()), ..ItemFilter::default() };
        assert_eq!(keys(&page(images, 9).0), ["1/image/a", "2/image/a", "10/image/a"]);
        let (second, from) = (
            ItemFilter { step: Some(2), ..ItemFilter::default() },
            ItemFilter { from_step: 3, ..ItemFilter::default() },
        );
        assert_eq!(keys(&page(second, 9).0), ["2/image/a", "2/image/b/c"]);
        assert_eq!(keys(&page(from, 9).0), ["10/image/a", "10/table/t"]);
    }

    /// The files are returned as they are stored, so the types of the interface must read them.
    #[test]
    fn stored_files_are_documents_of_the_interface() {
        let histogram = LoggedHistogram { edges: vec![0.0, 0.5], counts: vec![3] };
        let read = parse_histogram(&LoggedItem::Histogram(histogram).encode().unwrap()).unwrap();
        assert_eq!(read, HistogramDocument { edges: vec![0.0, 0.5], counts: vec![3] });
        let column = |name: &str, values| LoggedColumn { name: name.to_owned(), values };
        let columns = vec![
            column("a", ColumnValues::Number(vec![None, Some(0.25)])),
            column("b", ColumnValues::Integer(vec![1, i64::MAX])),
            column("c", ColumnValues::Text(vec!["x".to_owned(), String::new()])),
            column("d", ColumnValues::Boolean(vec![true, false])),
        ];
        let file = LoggedItem::Table(LoggedTable { columns }).encode().unwrap();
        let table: TableDocument = serde_json::from_slice(&file).unwrap();
        assert_eq!(table.row_count(), 2);
        assert_eq!(table.columns[0].values, TableValuesDocument::Number(vec![None, Some(0.25)]));
        let row = |row| table.columns.iter().map(|column| column.values.cell_text(row)).collect::<Vec<_>>();
        assert_eq!(
            (row(0), row(1)),
            (
                vec!["".into(), "1".into(), "x".into(), "true".into()],
                vec!["0.25".to_owned(), i64::MAX.to_string(), String::new(), "false".to_owned()]
            )
        );
    }
}
