use std::fs;
use std::io::Read;
use std::path::Path;

use saggar_tensor::{DType, Descriptor, Shape};
use tar::EntryType;

use super::*;
use crate::checkpoint::VariableKind;
use crate::error::BundleError;
use crate::image_preprocessing::{
    ImageColors, ImageFit, ImageLayout, ImageNormalization, ImagePreprocessing, ImageResize,
};
use crate::models::{ModelProvenance, ModelPublication};

fn variable(name: &str, kind: VariableKind) -> SavedVariable {
    let descriptor = Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap());
    SavedVariable { name: name.to_owned(), kind, descriptor, bytes: Bytes::from(vec![7; 24]) }
}

/// Returns a preprocessing whose numbers have no short binary form.
fn image_input() -> ImagePreprocessing {
    let (mean, scale) = (vec![123.675, 116.28, 103.53], vec![0.017_124_754, 0.017_507_004, 1.0 / 3.0]);
    ImagePreprocessing {
        resize: ImageResize { height: 5, width: 7, fit: ImageFit::Crop },
        colors: ImageColors::Rgb,
        normalization: ImageNormalization::MeanAndScale { mean, scale },
        layout: ImageLayout::Nhwc,
    }
}

/// Publishes a version with a card and returns its directory.
fn publish(models: &ModelRegistry, card: Option<&str>) -> PublishedVersion {
    let variables = [variable("kernel", VariableKind::Parameter), variable("mean", VariableKind::Statistic)];
    let provenance = ModelProvenance { seed: Some(7), program: "0.1.0".to_owned(), ..ModelProvenance::default() };
    let publication = ModelPublication {
        model: "net",
        plugin: b"\0asm",
        variables: &variables,
        config: r#"{"size": 3}"#,
        inputs: [("image".to_owned(), image_input())].into(),
        source_job: "net-1",
        created_ms: 5,
        metrics: [("accuracy".to_owned(), 0.5)].into(),
        card,
        provenance,
    };
    models.publish(&publication).unwrap()
}

fn bundle(dir: &Path, model: &str) -> Vec<u8> {
    let files = crate::models::verify(dir).unwrap();
    let mut reader = files.to_bundle(model).unwrap();
    let (announced, mut bytes) = (reader.total_bytes(), Vec::new());
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, announced);
    bytes
}

/// An entry of an archive that a test writes.
#[derive(Clone)]
struct Entry {
    name: String,
    kind: EntryType,
    content: Vec<u8>,
    /// The size in its header, if it lies.
    announced: Option<u64>,
}

fn entries(bundle: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(bundle);
    let entry = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        Entry { name, kind: EntryType::Regular, content, announced: None }
    };
    archive.entries().unwrap().map(entry).collect()
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut header = entry_header("x", entry.announced.unwrap_or(entry.content.len() as u64));
        header.as_mut_bytes()[..100].fill(0);
        header.as_mut_bytes()[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(&entry.content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

fn refusal(bytes: Vec<u8>) -> String {
    ModelBundle::read(&Bytes::from(bytes)).map(|read| read.model).unwrap_err().to_string()
}

/// Returns the entries of a bundle whose digests and sizes were made to fit again after `change`.
fn rewritten(change: impl FnOnce(&mut serde_json::Value)) -> Vec<Entry> {
    let place = tempfile::tempdir().unwrap();
    let mut all = entries(&bundle(&publish(&ModelRegistry::new(place.path()), None).dir, "net"));
    let mut manifest: serde_json::Value = serde_json::from_slice(&all[1].content).unwrap();
    change(&mut manifest);
    all[1].content = serde_json::to_vec(&manifest).unwrap();
    let index = BundleIndex { format: 1, model: "net".to_owned(), manifest: Digest::of(&all[1].content) };
    all[0].content = serde_json::to_vec(&index).unwrap();
    all
}

#[test]
fn an_imported_version_and_its_bundle_are_bit_equal() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for card in [None, Some("# A card\n")] {
        let published = publish(&ModelRegistry::new(place.path()), card);
        let exported = bundle(&published.dir, "net");
        assert_eq!(bundle(&published.dir, "net"), exported);
        let read = ModelBundle::read(&Bytes::from(exported.clone())).unwrap();
        assert_eq!((read.model.as_str(), read.variables().len()), ("net", 2));
        let models = ModelRegistry::new(other.path());
        let imported = models.publish_bundle("copy", &read).unwrap();
        assert!(imported.is_new && !models.publish_bundle("copy", &read).unwrap().is_new);
        for file in fs::read_dir(&published.dir).unwrap() {
            let file = file.unwrap().file_name();
            let [from, to] = [&published.dir, &imported.dir].map(|dir| fs::read(dir.join(&file)).unwrap());
            assert_eq!(from, to, "{file:?}");
        }
        assert_eq!(bundle(&imported.dir, "net"), exported);
        assert_eq!(crate::models::verify(&imported.dir).unwrap().load_card().unwrap().as_deref(), card);
    }
}

#[test]
fn every_truncated_bundle_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let whole = bundle(&publish(&ModelRegistry::new(place.path()), Some("card")).dir, "net");
    for length in 0..whole.len() {
        let error = refusal(whole[..length].to_vec());
        let is_named = error.contains("cut off") || error.contains("has only");
        assert!(is_named, "{length}: {error}");
    }
    assert!(refusal([&whole[..], &[0; 512]].concat()).contains("512 bytes follow the end"));
    assert!(refusal([&whole[..], b"x"].concat()).contains("bytes follow the end"));
}

#[test]
fn every_changed_byte_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let whole = bundle(&publish(&ModelRegistry::new(place.path()), Some("card")).dir, "net");
    // The name of the model is in no digest. A change of it gives another valid bundle, or an invalid name.
    let name = whole.windows(3).position(|window| window == b"net").unwrap();
    for at in (0..whole.len()).filter(|at| !(name..name + 3).contains(at)) {
        let mut changed = whole.clone();
        changed[at] ^= 0x20;
        assert!(ModelBundle::read(&Bytes::from(changed)).is_err(), "byte {at} of {}", whole.len());
    }
}

#[test]
fn hostile_entries_are_refused_by_name() {
    let good = rewritten(|_| {});
    ModelBundle::read(&Bytes::from(archive(&good))).unwrap();
    let with = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut changed = good.clone();
        change(&mut changed);
        refusal(archive(&changed))
    };
    let file =
        |name: &str| Entry { name: name.to_owned(), kind: EntryType::Regular, content: Vec::new(), announced: None };
    for (name, says) in [
        ("../../etc/passwd", "`../../etc/passwd`: a bundle has no such file"),
        ("/plugin.wasm", "`/plugin.wasm`: a bundle has no such file"),
        ("./plugin.wasm", "`./plugin.wasm`: a bundle has no such file"),
        ("weights.safetensors", "it is in the place of plugin.wasm"),
        ("manifest.json", "`manifest.json`: it is there twice"),
    ] {
        let error = with(&|entries| entries.insert(2, file(name)));
        assert!(error.contains(says), "{name}: {error}");
    }
    for (kind, says) in [
        (EntryType::Symlink, "it is a symbolic link"),
        (EntryType::Link, "it is a hard link"),
        (EntryType::Directory, "it is a directory"),
        (EntryType::Fifo, "it is a device"),
        (EntryType::GNULongName, "it is an extension"),
        (EntryType::XHeader, "it is an extension"),
    ] {
        let error = with(&|entries| entries[2].kind = kind);
        assert!(error.contains("`plugin.wasm`") && error.contains(says), "{error}");
    }
    for at in 0..4 {
        let error = with(&|entries| drop(entries.remove(at)));
        let says = if at == 3 { "weights.safetensors is missing" } else { "it is in the place of" };
        assert!(error.contains(says), "{at}: {error}");
        let error = with(&|entries| entries.insert(at + 1, entries[at].clone()));
        assert!(error.contains("it is there twice"), "{at}: {error}");
    }
    assert!(with(&|entries| entries.push(file("card.md"))).contains("`card.md`: it is in the place of the end"));
    for announced in [1 << 20, (1 << 33) - 1, u64::MAX] {
        let error = with(&|entries| entries[3].announced = Some(announced));
        assert!(error.contains("weights.safetensors"), "{announced}: {error}");
    }
    let error = with(&|entries| entries[0].announced = Some(1 << 30));
    assert!(error.contains("`bundle.json`: it would have 1073741824 bytes, and at most 4096"), "{error}");
}

#[test]
fn a_manifest_that_lies_is_refused() {
    let of = |change: fn(&mut serde_json::Value)| refusal(archive(&rewritten(change)));
    let other = || serde_json::to_value(Digest::of(b"other")).unwrap();
    assert!(of(|it| it["files"][1]["bytes"] = 5.into()).contains("manifest.json says 5"));
    assert!(of(|it| it["files"][0]["bytes"] = u64::MAX.into()).contains("plugin.wasm has 4 bytes"));
    let error = refusal(archive(&rewritten(|it| it["files"][0]["sha256"] = other())));
    assert!(error.contains("plugin.wasm has SHA-256"), "{error}");
    let error = refusal(archive(&rewritten(|it| it["plugin"] = other())));
    assert!(error.contains("plugin.wasm has SHA-256"), "{error}");
    let error = refusal(archive(&rewritten(|it| it["weights"] = other())));
    assert!(error.contains("it says that the weights have digest"), "{error}");
    assert!(of(|it| it["files"][0]["name"] = "../x".into()).contains("expected plugin.wasm"));
    assert!(of(|it| it["statistics"] = vec!["nothing"].into()).contains("`nothing`"));
    assert!(of(|it| it["format"] = 99.into()).contains("manifest.json has format 99"));
    assert!(of(|it| it["surprise"] = 1.into()).contains("surprise"));
}

#[test]
fn compressed_and_foreign_files_are_refused_by_format() {
    for (magic, says) in [
        (&b"\x1f\x8b\x08\0"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "Zstandard"),
        (b"PK\x03\x04", "ZIP"),
        (b"\0asm\x0d\0\x01\0", "does not begin as a tar archive"),
    ] {
        let mut bytes = magic.to_vec();
        bytes.resize(4 * BLOCK, 1);
        let error = refusal(bytes);
        assert!(error.contains(says) && error.contains("saggar models export"), "{error}");
    }
    assert!(refusal(vec![0; 4 * BLOCK]).contains("bundle.json is missing"));
    assert!(matches!(ModelBundle::read(&Bytes::new()), Err(BundleError::NotBundle { .. })));
}

#[test]
fn a_bundle_keeps_the_preprocessing_of_inputs_bit_for_bit() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = bundle(&publish(&ModelRegistry::new(place.path()), None).dir, "net");
    let read = ModelBundle::read(&Bytes::from(bytes.clone())).unwrap();
    let published = ModelRegistry::new(other.path()).publish_bundle("copy", &read).unwrap();
    let manifest = crate::models::verify(&published.dir).unwrap().manifest;
    assert_eq!(manifest.inputs, [("image".to_owned(), image_input())].into());
    assert_eq!(bundle(&published.dir, "net"), bytes);
}
