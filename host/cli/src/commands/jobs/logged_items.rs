//! `saggar logged`: the images, tables and histograms that a job logged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_rest::logged_items::{
    HistogramDocument, LoggedItemDocument, LoggedItemListDocument, LoggedValueDocument, TableDocument,
};
use saggar_store::{LoggedKey, LoggedKind};
use serde::Serialize;

use crate::args::LoggedArgs;
use crate::atomic_file::write_atomically;
use crate::client::{ApiClient, encode_path_segment};
use crate::commands::job_follow::job_path;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

/// The items of one kind and name.
#[derive(Default)]
struct ItemSeries {
    items: usize,
    first_step: u64,
    last_step: u64,
    bytes: u64,
}

/// A file that was saved, as JSON.
#[derive(Serialize)]
struct SavedItem {
    step: u64,
    kind: String,
    name: String,
    bytes: u64,
    file: String,
}

pub(crate) fn logged(args: &LoggedArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let items = list_items(args, client)?;
    if items.is_empty() && (args.name.is_some() || args.step.is_some()) {
        let message = format!("job {} logged no such item", args.job);
        let hint = format!("`saggar logged {}` lists what it logged", args.job);
        return Err(CliError::new(exit::NOT_FOUND, "not_found", message).with_hint(hint));
    }
    if let Some(directory) = &args.output {
        return save_items(args, &items, directory, client, output);
    }
    if output.json {
        output.print_json(&items);
    } else if output.quiet {
        items.iter().for_each(|item| output.print_line(&format!("{}/{}/{}", item.step, item.kind, item.name)));
    } else if args.name.is_some() && args.step.is_some() {
        items.iter().try_for_each(|item| print_item(args, item, client, output))?;
    } else if args.name.is_some() || args.step.is_some() {
        print_items(&items, output);
    } else {
        print_series(&items, output);
        if items.is_empty() {
            output.print_note(&format!("Job {} logged no images, tables or histograms.", args.job));
        }
    }
    Ok(())
}

/// Lists all items that the arguments select, page by page.
fn list_items(args: &LoggedArgs, client: &ApiClient) -> Result<Vec<LoggedItemDocument>, CliError> {
    let mut query = String::new();
    let mut add = |name: &str, value: &str| query.push_str(&format!("&{name}={}", encode_path_segment(value)));
    args.kind.iter().for_each(|kind| add("kind", kind.name()));
    args.name.iter().for_each(|name| add("name", name));
    args.step.iter().for_each(|step| add("step", &step.to_string()));
    fetch_items(&args.job, &query, client)
}

/// Fetches the items of a job that `query` selects, such as `&kind=image`, page by page.
pub(super) fn fetch_items(job: &str, query: &str, client: &ApiClient) -> Result<Vec<LoggedItemDocument>, CliError> {
    let (mut items, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{}/logged?after={}{query}", job_path(job), encode_path_segment(&after));
        let page: LoggedItemListDocument = client.get(&path)?;
        items.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => return Ok(items),
        }
    }
}

/// Returns the path of an item on the server.
pub(super) fn item_path(job: &str, item: &LoggedItemDocument) -> String {
    format!("{}/logged/{}/{}/{}", job_path(job), item.step, item.kind, item.name)
}

/// Prints one row for each kind and name.
fn print_series(items: &[LoggedItemDocument], output: CliOutput) {
    let mut series: BTreeMap<(&str, &str), ItemSeries> = BTreeMap::new();
    for item in items {
        let one = series.entry((&item.kind, &item.name)).or_default();
        one.first_step = if one.items == 0 { item.step } else { one.first_step };
        (one.items, one.last_step, one.bytes) = (one.items + 1, item.step, one.bytes + item.bytes);
    }
    let row = |((kind, name), one): (&(&str, &str), &ItemSeries)| {
        vec![
            (*kind).to_owned(),
            (*name).to_owned(),
            one.items.to_string(),
            one.first_step.to_string(),
            one.last_step.to_string(),
            units::format_bytes(one.bytes),
        ]
    };
    let rows: Vec<Vec<String>> = series.iter().map(row).collect();
    output.print_table(&["KIND", "NAME", "ITEMS", "FIRST STEP", "LAST STEP", "SIZE"], &rows);
}

/// Prints one row for each item.
fn print_items(items: &[LoggedItemDocument], output: CliOutput) {
    let row = |item: &LoggedItemDocument| {
        vec![item.step.to_string(), item.kind.clone(), item.name.clone(), units::format_bytes(item.bytes)]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    output.print_table(&["STEP", "KIND", "NAME", "SIZE"], &rows);
}

/// Prints the values of a table or a histogram, and the size of an image.
fn print_item(
    args: &LoggedArgs,
    item: &LoggedItemDocument,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    if item.kind == LoggedKind::Image.name() {
        print_items(std::slice::from_ref(item), output);
        output.print_note(&format!(
            "`saggar logged {} --name {} --step {} -o DIR` saves it.",
            args.job, item.name, item.step
        ));
        return Ok(());
    }
    match client.get(&item_path(&args.job, item))? {
        LoggedValueDocument::Histogram(histogram) => print_histogram(&histogram, output),
        LoggedValueDocument::Table(table) => print_table(&table, output),
    }
    Ok(())
}

fn print_histogram(HistogramDocument { edges, counts }: &HistogramDocument, output: CliOutput) {
    let bins = counts.iter().zip(edges.windows(2));
    let rows: Vec<Vec<String>> =
        bins.map(|(count, edges)| vec![edges[0].to_string(), edges[1].to_string(), count.to_string()]).collect();
    output.print_table(&["FROM", "TO", "COUNT"], &rows);
}

fn print_table(table: &TableDocument, output: CliOutput) {
    let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let row = |row| table.columns.iter().map(|column| column.values.cell_text(row)).collect();
    let rows: Vec<Vec<String>> = (0..table.row_count()).map(row).collect();
    output.print_table(&headers, &rows);
}

/// Saves items as `DIR/NAME/STEP.png`, `.table.json` or `.histogram.json`.
fn save_items(
    args: &LoggedArgs,
    items: &[LoggedItemDocument],
    directory: &Path,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let mut saved = Vec::new();
    for item in items {
        let place = item_file(item, directory).ok_or_else(|| {
            CliError::invalid(format!("{:?} cannot be the name of a logged {}", item.name, item.kind))
                .with_hint(format!("`saggar logged {}` lists them", args.job))
        })?;
        let bytes = write_atomically(client.get_stream(&item_path(&args.job, item))?, &place)?;
        let file = place.display().to_string();
        if !output.json {
            output.print_line_ignoring_errors(&file);
        }
        saved.push(SavedItem { step: item.step, kind: item.kind.clone(), name: item.name.clone(), bytes, file });
    }
    if output.json {
        output.print_json(&saved);
    }
    Ok(())
}

/// Returns the local file of an item, or `None` if its name, which comes from a server, could leave the directory.
fn item_file(item: &LoggedItemDocument, directory: &Path) -> Option<PathBuf> {
    let key: LoggedKey = format!("{}/{}/{}", item.step, item.kind, item.name).parse().ok()?;
    Some(directory.join(&key.name).join(format!("{}{}", key.step, key.kind.file_suffix())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_items_stay_in_their_directory() {
        let file = |kind: &str, name: &str| {
            let item = LoggedItemDocument {
                step: 12,
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..LoggedItemDocument::default()
            };
            item_file(&item, Path::new("out"))
        };
        assert_eq!(file("image", "validation/wrong"), Some(PathBuf::from("out/validation/wrong/12.png")));
        assert_eq!(file("histogram", "w"), Some(PathBuf::from("out/w/12.histogram.json")));
        for (kind, name) in [("image", "../a"), ("image", "/etc/x"), ("picture", "a"), ("table", "")] {
            assert_eq!(file(kind, name), None, "{kind} {name}");
        }
    }
}
