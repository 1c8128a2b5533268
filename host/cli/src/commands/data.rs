//! `saggar data push` and `ls`. A push sends only what the server lacks, so one that broke off goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use saggar_store::digest::{Digest, Hasher};
use serde_json::{Value, json};

use crate::args::{Data, DataPush};
use crate::client::{Client, Payload};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::progress::Progress;
use crate::units;

/// Bytes of a chunk; the server takes no larger ones.
const CHUNK_BYTES: usize = 4 << 20;

pub(crate) fn data(args: &Data, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Data::Push(push) => self::push(push, client, output),
        Data::Ls { name } => list(name.as_deref(), client, output),
    }
}

/// Where a chunk can be read again.
struct Place {
    path: PathBuf,
    index: u64,
    bytes: u64,
}

fn push(args: &DataPush, client: &Client, output: Output) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => args
            .dir
            .canonicalize()
            .ok()
            .and_then(|dir| Some(dir.file_name()?.to_string_lossy().to_lowercase()))
            .unwrap_or_default(),
    };
    let paths = files(&args.dir)?;
    let total: u64 = paths.iter().filter_map(|path| path.metadata().ok()).map(|data| data.len()).sum();
    let mut progress = Progress::of_bytes("reading", total, output);
    let mut chunks = BTreeMap::new();
    let mut files = Vec::new();
    for path in &paths {
        files.push(describe(&args.dir, path, &mut chunks, &mut progress)?);
    }
    drop(progress);
    let begun = client.post("/api/v1/datasets", Payload::Json(&json!({ "name": name, "files": files })))?;
    let upload = begun["upload"].as_str().unwrap_or_default();
    let missing: BTreeSet<&str> = begun["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    send(client, &name, upload, &missing, &chunks, output)?;
    let stored = client.post(&format!("/api/v1/datasets/{name}/uploads/{upload}/commit"), Payload::Nothing)?;
    if output.json {
        output.json(&stored);
    } else {
        let (version, items) = (&stored["version"], &stored["items"]);
        output.line(&format!("{name}/{version}"));
        output.note(&format!("  {items} items, {} read", units::show_bytes(total)));
    }
    Ok(())
}

/// Plain files below `dir`, sorted; names that begin with a dot are left out.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Failure::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display()))
    };
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).map_err(|error| unreadable(&dir, error))? {
            let path = entry.map_err(|error| unreadable(&dir, error))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                continue;
            }
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    if found.is_empty() {
        return Err(Failure::invalid(format!("{} holds no files", dir.display())));
    }
    found.sort();
    Ok(found)
}

fn describe(
    root: &Path,
    path: &Path,
    chunks: &mut BTreeMap<String, Place>,
    progress: &mut Progress,
) -> Result<Value, Failure> {
    let mut file = open(path)?;
    let mut whole = Hasher::new();
    let (mut size, mut list) = (0u64, Vec::new());
    loop {
        let bytes = read_chunk(&mut file, path)?;
        if bytes.is_empty() {
            break;
        }
        whole.update(&bytes);
        let digest = Digest::of(&bytes).hex();
        let place = Place { path: path.to_owned(), index: list.len() as u64, bytes: bytes.len() as u64 };
        chunks.entry(digest.clone()).or_insert(place);
        list.push(digest);
        size += bytes.len() as u64;
        progress.advance(bytes.len() as u64);
    }
    let relative: Vec<String> =
        path.strip_prefix(root).unwrap_or(path).iter().map(|part| part.to_string_lossy().into_owned()).collect();
    Ok(json!({ "path": relative.join("/"), "size": size, "sha256": whole.finish().hex(), "chunks": list }))
}

fn send(
    client: &Client,
    name: &str,
    upload: &str,
    missing: &BTreeSet<&str>,
    chunks: &BTreeMap<String, Place>,
    output: Output,
) -> Result<(), Failure> {
    let offered = missing.iter().filter_map(|digest| chunks.get(*digest));
    let mut progress = Progress::of_bytes("sending", offered.map(|place| place.bytes).sum(), output);
    for digest in missing {
        let place = chunks.get(*digest).ok_or_else(|| {
            Failure::new(
                exit::UNEXPECTED,
                "bad_answer",
                format!("the server asks for a chunk that was not offered: {digest}"),
            )
        })?;
        let mut file = open(&place.path)?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(place.index * CHUNK_BYTES as u64)).map_err(
            |error| Failure::new(exit::UNEXPECTED, "unreadable", format!("{}: {error}", place.path.display())),
        )?;
        let bytes = read_chunk(&mut file, &place.path)?;
        client.put(&format!("/api/v1/datasets/{name}/uploads/{upload}/chunks/{digest}"), &bytes)?;
        progress.advance(bytes.len() as u64);
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path)
        .map_err(|error| Failure::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display())))
}

fn read_chunk(file: &mut File, path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = file.take(CHUNK_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(exit::UNEXPECTED, "unreadable", format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

fn list(name: Option<&str>, client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("/api/v1/datasets")?;
    let all = answer["datasets"].as_array().cloned().unwrap_or_default();
    let shown: Vec<Value> = all.into_iter().filter(|dataset| name.is_none_or(|name| dataset["name"] == name)).collect();
    if output.json {
        output.json(&Value::Array(shown));
        return Ok(());
    }
    if let (true, Some(name)) = (shown.is_empty(), name) {
        return Err(Failure::new(exit::NOT_FOUND, "not_found", format!("there is no dataset {name}"))
            .hint("`saggar data ls` lists them"));
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|dataset| {
            let fields = dataset["fields"].as_array().into_iter().flatten();
            let fields: Vec<&str> = fields.filter_map(|field| field["name"].as_str()).collect();
            vec![
                format!("{}/{}", dataset["name"].as_str().unwrap_or("?"), dataset["version"]),
                dataset["items"].to_string(),
                units::show_bytes(dataset["bytes"].as_u64().unwrap_or(0)),
                fields.join(", "),
            ]
        })
        .collect();
    output.table(&["DATASET", "ITEMS", "SIZE", "FIELDS"], &rows);
    if rows.is_empty() {
        output.note("No datasets. Store one with `saggar data push DIR --name NAME`.");
    }
    Ok(())
}
