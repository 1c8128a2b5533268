use std::fs;

use saggar_tensor::{DType, Descriptor, Shape};
use tempfile::TempDir;

use super::*;

fn variable(name: &str, kind: VariableKind, dtype: DType, dims: &[usize]) -> SavedVariable {
    let descriptor = Descriptor::new(dtype, Shape::new(dims).unwrap());
    let bytes = (0..descriptor.bytes()).map(|at| at as u8).collect();
    SavedVariable { name: name.to_owned(), kind, descriptor, bytes }
}

fn variables() -> Vec<SavedVariable> {
    vec![
        variable("scale", VariableKind::Parameter, DType::F32, &[]),
        variable("mean", VariableKind::Statistic, DType::F16, &[3]),
        variable("moment", VariableKind::Training, DType::F32, &[2, 3]),
        variable("kernel", VariableKind::Parameter, DType::F32, &[2, 3]),
        variable("empty", VariableKind::Parameter, DType::I64, &[0, 4]),
    ]
}

fn publication(variables: &[SavedVariable]) -> ModelPublication<'_> {
    ModelPublication {
        model: "net",
        plugin: b"\0asm",
        variables,
        config: "{}",
        inputs: Default::default(),
        source_job: "J1",
        created_ms: 5,
        metrics: BTreeMap::new(),
        card: None,
        provenance: Default::default(),
    }
}

fn models() -> (TempDir, ModelRegistry) {
    let directory = tempfile::tempdir().unwrap();
    let models = ModelRegistry::new(directory.path());
    (directory, models)
}

#[test]
fn a_published_version_is_loaded_without_its_training_variables() {
    let (_directory, models) = models();
    let published = models.publish(&publication(&variables())).unwrap();
    assert_eq!((published.version, published.is_new), (1, true));
    let files = verify(&published.dir).unwrap();
    assert_eq!(files.load_plugin().unwrap(), b"\0asm");
    let mut expected = variables();
    expected.retain(|it| it.kind != VariableKind::Training);
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(files.load_weights().unwrap(), expected);
    assert_eq!(files.manifest.weights, digest_of_variables(&expected));
    let found = models.scan().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].version, &found[0].state), ("net", 1, &VersionCompleteness::Complete));
}

#[test]
fn publishing_again_makes_a_version_only_if_something_changed() {
    let (_directory, models) = models();
    let same = variables();
    let mut trained = variables();
    trained[0].bytes = Bytes::from_static(&[9; 4]);
    let mut longer = variables();
    longer[2].bytes = Bytes::from(vec![7; 24]);
    let first = publication(&same);
    let publish = |it: &ModelPublication<'_>| models.publish(it).unwrap().version;
    assert_eq!(publish(&first), 1);
    assert_eq!(publish(&ModelPublication { created_ms: 99, ..first.clone() }), 1);
    assert_eq!(publish(&publication(&longer)), 1, "the moments are no part of it");
    assert_eq!(publish(&publication(&trained)), 2);
    assert_eq!(publish(&ModelPublication { config: "[]", ..first.clone() }), 3);
    assert_eq!(publish(&ModelPublication { plugin: b"other", ..first.clone() }), 4);
    assert_eq!(publish(&ModelPublication { source_job: "J2", ..first.clone() }), 5);
    assert_eq!(publish(&ModelPublication { inputs: declared_inputs(), ..first.clone() }), 6);
    assert_eq!(publish(&first), 1);
    assert_eq!(publish(&ModelPublication { model: "other", ..first.clone() }), 1);
    // Publishing again over a damaged version creates a valid one.
    std::fs::write(models.version_dir("net", 1).unwrap().join(WEIGHTS_FILE), "x").unwrap();
    assert_eq!(publish(&first), 7);
}

fn declared_inputs() -> ImageInputs {
    let text = r#"{"image": {
        "resize": {"height": 4, "width": 6, "fit": "stretch"}, "colors": "rgb", "layout": "nchw",
        "normalization": {"mean-and-scale": {"mean": [1, 2, 3], "scale": [0.5, 0.5, 0.25]}}
    }}"#;
    serde_json::from_str(text).unwrap()
}

/// A manifest that was written by hand, or comes in a bundle, is refused with the input and what is wrong.
#[test]
fn a_manifest_with_a_wrong_preprocessing_is_refused_with_the_input_and_the_fix() {
    let (_directory, models) = models();
    let variables = variables();
    let published = models.publish(&ModelPublication { inputs: declared_inputs(), ..publication(&variables) }).unwrap();
    let path = published.dir.join(MANIFEST_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let compact: serde_json::Value = serde_json::from_str(&text).unwrap();
    let compact = compact.to_string();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (from, to, expected) in [
        ("[1.0,2.0,3.0]", "[1.0,2.0]", "input image: mean: 2 values, and the image has 3 channels; declare 3"),
        ("0.25", "0.0", "input image: scale: the value of channel 2 is 0; declare a finite number other than 0"),
        ("0.25", "1e60", "input image: scale: the value of channel 2 is inf; declare a finite number other than 0"),
        ("0.25", "NaN", "expected value"),
        ("\"nchw\"", "\"nchw8\"", "unknown variant `nchw8`, expected `nchw` or `nhwc`"),
        ("\"height\":4", "\"height\":0", "input image: resize: 0 x 6 pixels; declare 1 to 16384 a side"),
        ("\"height\":4", "\"height\":1000000000", "input image: resize: 1000000000 x 6 pixels; declare 1 to 16384"),
        ("\"fit\":\"stretch\"", "\"fit\":\"tile\"", "unknown variant `tile`, expected `stretch` or `crop`"),
    ] {
        assert!(compact.contains(from), "{from} in {compact}");
        fs::write(&path, compact.replacen(from, to, 1)).unwrap();
        let error = verify(&published.dir).unwrap_err().to_string();
        assert!(error.contains("manifest.json") && error.contains(expected), "{error}");
    }
    fs::write(&path, &compact).unwrap();
    assert_eq!(verify(&published.dir).unwrap().manifest.inputs, declared_inputs());
}

#[test]
fn concurrent_publications_of_one_content_make_one_version() {
    let (_directory, models) = models();
    let variables = variables();
    let mut made: Vec<_> = std::thread::scope(|scope| {
        let publish = || models.publish(&publication(&variables)).unwrap();
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(publish)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    made.sort_by_key(|published| !published.is_new);
    assert!(made[0].is_new && made[1..].iter().all(|published| !published.is_new && published.version == 1));
}

#[test]
fn model_names_that_are_paths_are_refused() {
    let (directory, models) = models();
    for model in ["../x", "a/b", "", "Net", ".net"] {
        let refused = models.publish(&ModelPublication { model, ..publication(&[]) }).unwrap_err();
        assert!(matches!(refused, ModelError::BadName { .. }), "{refused}");
        assert!(matches!(models.version_dir(model, 1), Err(ModelError::BadName { .. })));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn weights_that_safetensors_cannot_hold_are_refused() {
    let (_directory, models) = models();
    let wrong_size = SavedVariable { bytes: Bytes::from_static(b"x"), ..variables().remove(0) };
    let reserved = SavedVariable { name: "__metadata__".to_owned(), ..variables().remove(0) };
    let twice = [variables().remove(0), variables().remove(0)];
    for variables in [&[wrong_size][..], &[reserved], &twice] {
        let refused = models.publish(&publication(variables)).unwrap_err();
        assert!(matches!(refused, ModelError::Weights { .. }), "{refused}");
    }
}

/// Every stage of a copy in progress, and every kind of damage, gives a reason.
#[test]
fn a_half_copied_version_is_incomplete_with_a_reason() {
    let (directory, models) = models();
    let good = models.publish(&publication(&variables())).unwrap().dir;
    let copy = directory.path().join("copied/7");
    let reason = |found: &str| {
        let state = models.scan().unwrap().into_iter().find(|it| it.name == "copied").unwrap().state;
        let VersionCompleteness::Incomplete(reason) = state else { panic!("{state:?}") };
        assert!(reason.contains(found), "{reason}");
        assert!(matches!(verify(&copy), Err(ModelError::Incomplete { .. })));
    };
    assert!(matches!(verify(&copy), Err(ModelError::NotFound { .. })));
    std::fs::create_dir_all(&copy).unwrap();
    reason("manifest.json: missing");
    for name in [MANIFEST_FILE, PLUGIN_FILE] {
        std::fs::copy(good.join(name), copy.join(name)).unwrap();
    }
    reason("weights.safetensors: missing");
    let weights = std::fs::read(good.join(WEIGHTS_FILE)).unwrap();
    for cut in [0, 8, weights.len() - 1] {
        std::fs::write(copy.join(WEIGHTS_FILE), &weights[..cut]).unwrap();
        reason(&format!("weights.safetensors: has {cut} bytes"));
    }
    std::fs::write(copy.join(WEIGHTS_FILE), &weights).unwrap();
    assert_eq!(verify(&copy).unwrap().manifest, verify(&good).unwrap().manifest);
    let manifest = std::fs::read_to_string(good.join(MANIFEST_FILE)).unwrap();
    let edits = [
        ("", ""),
        (&manifest[..40], ""),
        ("\"format\": 1", "\"format\": 2"),
        (PLUGIN_FILE, "../../secret"),
        ("\"config\"", "\"configuration\""),
    ];
    for (from, to) in edits {
        let edited = if from.is_empty() { String::new() } else { manifest.replacen(from, to, 1) };
        std::fs::write(copy.join(MANIFEST_FILE), edited).unwrap();
        reason("manifest.json");
    }
}

#[test]
fn verification_detects_damage_of_unchanged_size() {
    let (_directory, models) = models();
    let dir = models.publish(&publication(&variables())).unwrap().dir;
    let files = verify(&dir).unwrap();
    for name in [PLUGIN_FILE, WEIGHTS_FILE] {
        let path = dir.join(name);
        let content = std::fs::read(&path).unwrap();
        for at in 0..content.len() {
            let mut flipped = content.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, flipped).unwrap();
            let refused = verify(&dir).unwrap_err();
            assert!(
                matches!(&refused, ModelError::Incomplete { file, problem: FileProblem::WrongDigest { .. } } if *file == path),
                "{refused}"
            );
        }
        assert!(files.load_plugin().is_err() || files.load_weights().is_err());
        std::fs::write(&path, content).unwrap();
    }
    verify(&dir).unwrap();
}

/// Files with correct digests and invalid headers, as another program could write them.
#[test]
fn hostile_weights_are_refused() {
    let header = |json: &str, data: usize| {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend(json.bytes());
        file.extend(vec![0; data]);
        file
    };
    let tensor = |dtype: &str, shape: &str, start: i64, end: i64, data: usize| {
        header(&format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}}}"#), data)
    };
    let hostile = [
        Vec::new(),
        vec![0; 8],
        u64::MAX.to_le_bytes().to_vec(),
        header("{\"a\":", 4),
        header("\u{feff}{}", 0),
        tensor("F32", "[1]", 4, 0, 4),
        tensor("F32", "[1]", 0, 8, 4),
        tensor("F32", "[1]", -4, 0, 4),
        tensor("F32", "[2]", 0, 4, 4),
        tensor("F32", "[4194305,4194305,211106198978564]", 0, 4, 4),
        tensor("F64", "[1]", 0, 8, 8),
        tensor("F32", "[1]", 0, 4, 8),
        tensor("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 4, 4),
    ];
    for file in hostile {
        let read = weights::decode(&Bytes::from(file.clone()), &[]);
        assert!(read.is_err(), "{:?}", String::from_utf8_lossy(&file));
    }
    weights::decode(&Bytes::from(tensor("F32", "[1]", 0, 4, 4)), &[]).unwrap();
}

#[test]
fn named_pipes_in_a_version_are_refused_without_blocking() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (_directory, models) = models();
    let dir = models.publish(&publication(&variables())).unwrap().dir;
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    };
    for file in [WEIGHTS_FILE, PLUGIN_FILE, MANIFEST_FILE] {
        pipe(&dir.join(file));
        let error = verify(&dir).unwrap_err().to_string();
        assert!(error.contains(file) && (error.contains("regular file") || error.contains("named pipe")), "{error}");
        let found = models.scan().unwrap();
        assert!(matches!(&found[0].state, VersionCompleteness::Incomplete(_)), "{found:?}");
    }
    pipe(&dir.with_file_name("serving.json"));
    let error = models.read_note("net", "serving.json").unwrap_err().to_string();
    assert!(error.contains("serving.json: a named pipe"), "{error}");
}
