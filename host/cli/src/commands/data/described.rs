//! The `dataset.json` that the options of `saggar data push` stand for.
//!
//! Options become keys of the description, so a push with options and one with the same keys in a file give the same
//! dataset.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::DataTableArgs;
use crate::exit::{self, CliError};

/// The name of the description in a dataset's folder.
pub(super) const DESCRIPTION_FILE: &str = "dataset.json";
/// Bytes of a description: the server's maximum.
const DESCRIPTION_BYTES_MAX: u64 = saggar_store::limits::DESCRIPTION_BYTES_MAX;

/// Returns the description of these files with the options' keys, or `None` if no options are given. `names` are the
/// paths of the files in the folder.
pub(super) fn described(
    args: &DataTableArgs,
    existing: Option<&Path>,
    names: &[String],
) -> Result<Option<Vec<u8>>, CliError> {
    let options = option_keys(args);
    if options.is_empty() {
        return Ok(None);
    }
    let mut description = match existing {
        Some(path) => read_description(path)?,
        None => Map::from_iter([("format".to_owned(), json!(find_format(args, names)?))]),
    };
    for (key, option, value) in options {
        if description.get(key).is_some_and(|given| *given != value) {
            return Err(CliError::invalid(format!("{option} and the key `{key}` of {DESCRIPTION_FILE} contradict"))
                .with_hint(format!("change the key in {DESCRIPTION_FILE}, or leave {option} out")));
        }
        description.insert(key.to_owned(), value);
    }
    let text = serde_json::to_vec_pretty(&description).expect("a map with text keys can always be written");
    if text.len() as u64 > DESCRIPTION_BYTES_MAX {
        return Err(CliError::invalid(format!("{DESCRIPTION_FILE}: more than {DESCRIPTION_BYTES_MAX} bytes")));
    }
    Ok(Some(text))
}

/// Returns the given options: the key, the option and the value of the key.
fn option_keys(args: &DataTableArgs) -> Vec<(&'static str, &'static str, Value)> {
    let mut keys = Vec::new();
    if let Some(target) = &args.target {
        keys.push(("target", "--target", json!(target)));
    }
    if let Some(share) = args.split {
        // Shares have four decimals, and must add up to 1.
        let share = (share * 10_000.0).round();
        keys.push(("splits", "--split", json!({ "train": (10_000.0 - share) / 10_000.0, "test": share / 10_000.0 })));
    }
    if let Some(missing) = &args.missing {
        keys.push(("missing", "--missing", json!(missing)));
    }
    if !args.ignore.is_empty() {
        keys.push(("ignore", "--ignore", json!(args.ignore)));
    }
    if let Some(size) = args.resize {
        keys.push(("resize", "--resize", json!({ "width": size.width, "height": size.height })));
    }
    keys
}

/// The formats that options apply to, and the endings of their files.
const FORMATS: [(&str, &str); 7] = [
    ("parquet", ".parquet"),
    ("arrow", ".arrow"),
    ("arrow", ".feather"),
    ("jsonlines", ".jsonl"),
    ("jsonlines", ".ndjson"),
    ("webdataset", ".tar"),
    ("csv", ".csv"),
];

/// The endings of images.
const IMAGE_ENDINGS: [&str; 4] = [".png", ".jpg", ".jpeg", ".webp"];

/// Returns the format of the files that the options describe.
fn find_format(args: &DataTableArgs, names: &[String]) -> Result<&'static str, CliError> {
    let plain = |name: &String| name.strip_suffix(".gz").unwrap_or(name).to_lowercase();
    let has = |ending: &str| names.iter().any(|name| !name.contains('/') && plain(name).ends_with(ending));
    let is_image = |name: &&String| IMAGE_ENDINGS.iter().any(|ending| name.to_lowercase().ends_with(ending));
    if args.resize.is_some() && names.iter().any(|name| name.contains('/') && is_image(&name)) {
        return Ok("images");
    }
    let found = FORMATS.into_iter().find(|(format, ending)| {
        (args.resize.is_none() || ["parquet", "arrow", "webdataset"].contains(format)) && has(ending)
    });
    if found.is_some_and(|(format, _)| format != "csv") && (args.target.is_some() || !args.ignore.is_empty()) {
        return Err(CliError::invalid("--target and --ignore are for CSV files").with_hint(
            "name the fields in dataset.json; `saggar run PLUGIN -- target=FIELD` chooses what is predicted",
        ));
    }
    let given = option_keys(args);
    let options: Vec<&str> = given.iter().map(|(_, option, _)| *option).collect();
    found.map(|(format, _)| format).ok_or_else(|| {
        let kind = if args.resize.is_some() {
            "folders of images, Parquet or Arrow files, or archives"
        } else {
            "CSV, JSON, Parquet, Arrow or .tar file"
        };
        CliError::invalid(format!("{}: no {kind} to apply it to", options.join(", ")))
            .with_hint("for other files, describe them in dataset.json")
    })
}

fn read_description(path: &Path) -> Result<Map<String, Value>, CliError> {
    let text = saggar_store::regular_file::read(path, DESCRIPTION_BYTES_MAX)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display())))?;
    serde_json::from_slice(&text).map_err(|error| CliError::invalid(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(args: &DataTableArgs, existing: Option<&str>, names: &[&str]) -> Result<Value, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DESCRIPTION_FILE);
        if let Some(text) = existing {
            std::fs::write(&path, text).unwrap();
        }
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let text = described(args, existing.map(|_| path.as_path()), &names).map_err(|error| error.message)?;
        Ok(text.map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap()))
    }

    #[test]
    fn options_become_keys_of_the_description() {
        let args = |target: Option<&str>, split, missing: Option<&str>| DataTableArgs {
            target: target.map(str::to_owned),
            split,
            missing: missing.map(str::to_owned),
            ..DataTableArgs::default()
        };
        assert_eq!(keys(&args(None, None, None), None, &["a.csv"]), Ok(Value::Null));
        let all = args(Some("price"), Some(0.2), Some("drop"));
        let splits = json!({ "train": 0.8, "test": 0.2 });
        let expected = json!({ "format": "csv", "target": "price", "splits": splits, "missing": "drop" });
        assert_eq!(keys(&all, None, &["Wine.CSV.gz"]), Ok(expected));
        let split = args(None, Some(0.2), None);
        assert_eq!(keys(&split, None, &["a.parquet"]), Ok(json!({ "format": "parquet", "splits": splits })));
        assert_eq!(keys(&split, None, &["a.feather"]), Ok(json!({ "format": "arrow", "splits": splits })));
        let size = Some(crate::args::ImageSize { width: 8, height: 6 });
        let resize = DataTableArgs { resize: size, ..DataTableArgs::default() };
        let expected = json!({ "format": "images", "resize": { "width": 8, "height": 6 } });
        assert_eq!(keys(&resize, None, &["train/a/1.PNG"]), Ok(expected));
        let expected = json!({ "format": "arrow", "resize": { "width": 8, "height": 6 } });
        assert_eq!(keys(&resize, None, &["data-00000-of-00001.arrow"]), Ok(expected));
        assert_eq!(
            keys(&resize, None, &["a.csv"]).unwrap_err(),
            "--resize: no folders of images, Parquet or Arrow files, or archives to apply it to"
        );
        let file = r#"{"format": "csv", "file": "a.csv"}"#;
        assert_eq!(keys(&split, Some(file), &[]), Ok(json!({ "format": "csv", "file": "a.csv", "splits": splits })));
        let refused = keys(&split, Some(r#"{"format": "csv", "splits": {"train": 1}}"#), &[]).unwrap_err();
        assert_eq!(refused, "--split and the key `splits` of dataset.json contradict");
        let refused = keys(&args(Some("price"), None, None), None, &["a.jsonl"]).unwrap_err();
        assert_eq!(refused, "--target and --ignore are for CSV files");
        assert_eq!(
            keys(&split, None, &["a.npy"]).unwrap_err(),
            "--split: no CSV, JSON, Parquet, Arrow or .tar file to apply it to"
        );
    }
}
