//! Models that were made elsewhere: pushed plugins and weights, bundles, and their signatures.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

mod answers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::safetensors::tensor::{Dtype, TensorView, serialize};
use saggar_tests::{HttpPayload, ServerProcess, guest, lenet, plugin};
use serde_json::{Value, json};

/// The configuration of the plugin `mlp` in these tests.
const CONFIG: &str = r#"{"image": [2, 2], "unit": 3, "classes": ["cat", "dog"]}"#;

/// Returns a safetensors file with the tensors of `mlp`: all zeros, so that the last bias decides the class.
fn mlp_weights(change: impl FnOnce(&mut BTreeMap<&'static str, Vec<usize>>), last_bias: [f32; 2]) -> Vec<u8> {
    let mut shapes: BTreeMap<&str, Vec<usize>> = [
        ("l1/weight", vec![4, 3]),
        ("l1/bias", vec![3]),
        ("l2/weight", vec![3, 3]),
        ("l2/bias", vec![3]),
        ("l3/weight", vec![3, 2]),
        ("l3/bias", vec![2]),
    ]
    .into();
    change(&mut shapes);
    let bytes = |name: &str, shape: &[usize]| match name {
        "l3/bias" if shape == [2] => last_bias.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => vec![0_u8; 4 * shape.iter().product::<usize>()],
    };
    let bytes: Vec<Vec<u8>> = shapes.iter().map(|(name, shape)| bytes(name, shape)).collect();
    let views = shapes
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    serialize(views.collect::<BTreeMap<_, _>>(), None).unwrap()
}

/// Files of a test, in a directory.
struct TestFiles(tempfile::TempDir);

impl TestFiles {
    fn new() -> TestFiles {
        TestFiles(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.path().join(name), bytes).unwrap();
        self.path(name)
    }
}

/// Returns every file of the models directory that belongs to a version or to one that is being made.
fn stored_files(server: &ServerProcess) -> Vec<PathBuf> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => walk(&path, into),
                false => into.push(path),
            }
        }
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(server.home().join("models")).unwrap().flatten() {
        // The locks and the highest numbers of names.
        if entry.file_name() != ".locks" {
            walk(&entry.path(), &mut files);
        }
    }
    files
}

/// Returns the bytes of those files together.
fn stored_bytes(server: &ServerProcess) -> u64 {
    stored_files(server).iter().map(|path| path.metadata().unwrap().len()).sum()
}

fn errors_of(server: &ServerProcess, arguments: &[&str]) -> String {
    let output = server.saggar(arguments);
    assert_eq!(output.status.code(), Some(7), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn push_mlp(server: &ServerProcess, files: &TestFiles, last_bias: [f32; 2]) -> String {
    let weights = files.write("w.safetensors", mlp_weights(|_| {}, last_bias));
    let (config, card) = (files.write("c.json", CONFIG), files.write("card.md", "# Cats\n\nMade by hand.\n"));
    let mlp = plugin("mlp");
    let push = ["models", "push", "cats", mlp.to_str().unwrap(), "--weights", &weights, "--config", &config];
    server.saggar_ok(&[&push[..], &["--card", &card]].concat()).trim().to_owned()
}

fn label(server: &ServerProcess, model: &str) -> Value {
    let printed = server.saggar_ok(&["predict", model, "-i", "image=[[1, 2], [3, 4]]", "--json"]);
    serde_json::from_str::<Value>(&printed).unwrap()["label"].clone()
}

#[test]
fn a_pushed_plugin_without_weights_answers_within_five_seconds() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    let echo = guest("echo");
    let config = files.write("c.json", r#"{"size": 3}"#);
    let began = Instant::now();
    let pushed = server.saggar_ok(&["models", "push", "echo", echo.to_str().unwrap(), "--config", &config]);
    assert_eq!(pushed.trim(), "echo@1");
    let answer = server.request("POST", "/models/echo/predict", HttpPayload::Json(&json!({"x": [1.5, 2.0, 3.0]})));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((answer.status, &answer.json()["y"]), (200, &json!([1.5, 2.0, 3.0])), "{}", answer.text);

    // The same content again is the same version, also as a bare body.
    let again = server.saggar(&["models", "push", "echo", echo.to_str().unwrap(), "--config", &config]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("has this content already"), "{again:?}");
    let component = fs::read(&echo).unwrap();
    let bare = HttpPayload::Bytes("application/wasm", &component);
    let bare = server.request("POST", "/api/v1/models/bare/push", bare);
    assert_eq!((bare.status, &bare.json()["state"]), (201, &json!("READY")), "{}", bare.text);
    let default = server.request("POST", "/models/bare/predict", HttpPayload::Json(&json!({"x": [1, 2, 3, 4]})));
    assert_eq!(default.json()["y"].as_array().unwrap().len(), 4, "the configuration is {{}}: {}", default.text);
}

#[test]
fn pushed_weights_predict_and_are_described() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    assert_eq!(push_mlp(&server, &files, [0.0, 1.0]), "cats@1");
    assert_eq!(label(&server, "cats"), 1);
    assert_eq!(push_mlp(&server, &files, [1.0, 0.0]), "cats@2");
    assert_eq!((label(&server, "cats"), label(&server, "cats@1")), (json!(0), json!(1)));

    let detail: Value =
        serde_json::from_str(&server.saggar_ok(&["models", "show", "cats@2", "--verify", "--json"])).unwrap();
    assert_eq!((&detail["tensors"], &detail["elements"]), (&json!(6), &json!(12 + 3 + 9 + 3 + 6 + 2)), "{detail}");
    assert_eq!((&detail["card"], &detail["intact"]), (&json!("# Cats\n\nMade by hand.\n"), &json!(true)));
    assert_eq!(detail["config"], CONFIG);
    let printed = server.saggar_ok(&["models", "show", "cats@2"]);
    for word in ["cats@2", "READY", "35 elements", "Made by hand.", "plugin ", "weights "] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    assert_eq!(server.saggar(&["models", "show", "cats@9"]).status.code(), Some(3));
    // Damage is found when all files are read.
    let weights = server.home().join("models/cats/2/weights.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let damaged = server.saggar(&["models", "show", "cats@2", "--verify"]);
    let error = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(damaged.status.code() == Some(5) && error.contains("weights.safetensors has SHA-256"), "{error}");
}

#[test]
fn tensors_that_the_plugin_does_not_read_are_named() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    let (mlp, config) = (plugin("mlp"), files.write("c.json", CONFIG));
    let add = |it: &mut BTreeMap<&'static str, Vec<usize>>| {
        it.extend([("optimizer/step", vec![1]), ("l2/wieght", vec![3, 3])]);
    };
    let weights = files.write("w.safetensors", mlp_weights(add, [0.0, 1.0]));
    let push = ["models", "push", "cats", mlp.to_str().unwrap(), "--weights", &weights, "--config", &config];
    let pushed = server.saggar(&push);
    let note = "the plugin did not ask for 2 tensors of the weights while it loaded: l2/wieght, optimizer/step";
    let printed = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert!(pushed.status.success() && printed.contains(note), "{printed}");
    let again = server.saggar_ok(&[&push[..], &["--json"]].concat());
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["is_new"], &again["notes"]), (&json!(false), &json!([note])));
    assert_eq!(label(&server, "cats"), 1);
    // Without such tensors there is no note.
    let whole = files.write("w.safetensors", mlp_weights(|_| {}, [0.0, 1.0]));
    let push = ["models", "push", "dogs", mlp.to_str().unwrap(), "--weights", &whole, "--config", &config, "--json"];
    let pushed: Value = serde_json::from_str(&server.saggar_ok(&push)).unwrap();
    assert_eq!(pushed["notes"], json!([]));
}

#[test]
fn weights_that_do_not_fit_are_refused_by_tensor_and_nothing_is_kept() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    let (mlp, config) = (plugin("mlp"), files.write("c.json", CONFIG));
    let push = |weights: Vec<u8>| {
        let weights = files.write("w.safetensors", weights);
        let push = ["models", "push", "cats", mlp.to_str().unwrap(), "--weights", &weights, "--config", &config];
        errors_of(&server, &push)
    };
    let error = push(mlp_weights(|it| drop(it.insert("l2/weight", vec![3, 4])), [0.0; 2]));
    assert!(
        error.contains("tensor `l2/weight`: the plugin declares float32[3, 3], and the weights have float32[3, 4]"),
        "{error}"
    );
    let error = push(mlp_weights(|it| drop(it.remove("l2/bias")), [0.0; 2]));
    assert!(
        error.contains("tensor `l2/bias`: the plugin declares float32[3], and the weights have only `l1/bias`"),
        "{error}"
    );
    let error = errors_of(&server, &["models", "push", "cats", mlp.to_str().unwrap(), "--config", &config]);
    assert!(
        error.contains("tensor `l1/weight`: the plugin declares float32[4, 3], and the weights have no tensors"),
        "{error}"
    );
    let error = push(b"no safetensors".to_vec());
    assert!(error.contains("the weights cannot be read: its header would have"), "{error}");
    let cut = mlp_weights(|_| {}, [0.0; 2]);
    let error = push(cut[..cut.len() - 1].to_vec());
    assert!(error.contains("it would end at byte"), "{error}");
    let text = files.write("text.wasm", "no component");
    let error = errors_of(&server, &["models", "push", "cats", &text]);
    assert!(error.contains("not a WebAssembly component"), "{error}");
    // A plugin that only trains cannot answer.
    let error = errors_of(&server, &["models", "push", "cats", guest("steady").to_str().unwrap()]);
    assert!(error.contains("it cannot predict"), "{error}");
    let form = HttpPayload::Bytes(
        "multipart/form-data; boundary=x",
        b"--x\r\nContent-Disposition: form-data; name=\"wasm\"\r\n\r\n1\r\n--x--\r\n",
    );
    let refused = server.request("POST", "/api/v1/models/cats/push", form);
    assert!(
        refused.status == 400 && refused.text.contains("expected plugin, weights, config, image-inputs, card"),
        "{}",
        refused.text
    );
    assert_eq!(server.get("/api/v1/models")["models"], json!([]));
    assert_eq!(stored_files(&server), Vec::<PathBuf>::new());
}

#[test]
fn a_bundle_goes_round_between_servers_bit_equal() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    server.push_digits();
    let run = ["run", lenet().to_str().unwrap(), "--data", "digits", "--device", "cpu", "--project", "p", "--wait"]
        .map(str::to_owned);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    server.saggar_ok(&[&run[..], &["--", "epochs=1", "model=digits"]].concat());
    server.wait_for_version("digits", 1);
    push_mlp(&server, &files, [0.0, 1.0]);

    for (model, version) in [("digits", 1), ("cats", 1)] {
        let (first, second) = (files.path(&format!("{model}.saggar")), files.path(&format!("{model}-2.saggar")));
        server.saggar_ok(&["models", "export", &format!("{model}@{version}"), &first]);
        let refused = server.saggar(&["models", "export", model, &first]);
        assert_eq!(refused.status.code(), Some(5), "nothing is replaced: {refused:?}");
        assert_eq!(other.saggar_ok(&["models", "import-bundle", &first]).trim(), format!("{model}@1"));
        other.saggar_ok(&["models", "export", model, &second]);
        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap(), "{model}");
        let again = other.saggar(&["models", "import-bundle", &first]);
        assert!(String::from_utf8_lossy(&again.stderr).contains("has this content already"), "{again:?}");
    }
    let predict = |server: &ServerProcess| {
        server.saggar_ok(&["predict", "digits", "-i", "image=@examples/digits/held-out/3.png", "--json"])
    };
    assert_eq!(predict(&server), predict(&other));
    // What it was made from comes along.
    let detail = other.get("/api/v1/models/digits/versions/1");
    let provenance = &detail["provenance"];
    assert_eq!(provenance["data"].as_object().unwrap().values().collect::<Vec<_>>(), [&json!("digits/1")], "{detail}");
    assert_eq!(
        (&provenance["parameters"]["epochs"], provenance["device"].as_str().unwrap().starts_with("cpu")),
        (&json!(1), true),
        "{detail}"
    );
    assert!(
        provenance["step"].as_u64() > Some(0) && detail["version"]["metrics"]["validation/accuracy"].is_number(),
        "{detail}"
    );

    // Under another name, and removed again: the bytes are free.
    let before = stored_bytes(&other);
    let bundle = files.path("digits.saggar");
    assert_eq!(other.saggar_ok(&["models", "import-bundle", &bundle, "--name", "copy"]).trim(), "copy@1");
    let stored = stored_bytes(&other) - before;
    assert!(stored > fs::metadata(&bundle).unwrap().len() * 9 / 10, "{stored}");
    let removed: Value = serde_json::from_str(&other.saggar_ok(&["models", "rm", "copy", "--yes", "--json"])).unwrap();
    assert_eq!((&removed["removed"], stored_bytes(&other)), (&json!(["copy@1"]), before));
    assert!(removed["freed_bytes"].as_u64().unwrap() > fs::metadata(&bundle).unwrap().len() * 9 / 10, "{removed}");
    // A version beside the one that serves.
    push_mlp(&other, &files, [1.0, 0.0]);
    let both = stored_bytes(&other);
    other.saggar_ok(&["models", "rm", "cats@1", "--yes"]);
    assert!(stored_bytes(&other) < both && label(&other, "cats") == 0);
}

/// Returns a tar archive of these files, with the names exactly as given.
fn archive(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn hostile_bundles_are_refused_and_leave_nothing() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    push_mlp(&other, &files, [0.0, 1.0]);
    let path = files.path("cats.saggar");
    other.saggar_ok(&["models", "export", "cats", &path]);
    let good = fs::read(&path).unwrap();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    for entry in tar::Archive::new(&good[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        parts.push((entry.path().unwrap().to_str().unwrap().to_owned(), content));
    }
    let regular = tar::EntryType::Regular;
    let whole: Vec<(&str, tar::EntryType, &[u8])> =
        parts.iter().map(|(name, content)| (name.as_str(), regular, &content[..])).collect();
    assert_eq!(archive(&whole), good, "the test writes archives as the export does");
    let with = |at: usize, entry: (&'static str, tar::EntryType, &'static [u8])| {
        let mut entries = whole.clone();
        entries.insert(at, entry);
        archive(&entries)
    };
    let without = |at: usize| archive(&[&whole[..at], &whole[at + 1..]].concat());
    let replaced = |at: usize, content: &[u8]| {
        let mut entries: Vec<(&str, tar::EntryType, &[u8])> = whole.clone();
        entries[at].2 = content;
        archive(&entries)
    };
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 64 << 20), &mut bomb).unwrap();
    let mut lying = good.clone();
    lying[124..135].copy_from_slice(b"77777777777");
    let mut changed = good.clone();
    let weights = changed.len() - 4096;
    changed[weights] ^= 1;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("traversal", with(2, ("../../../escaped", regular, b"x")), "a bundle has no such file"),
        ("absolute path", with(5, ("/tmp/escaped", regular, b"x")), "a bundle has no such file"),
        ("link", with(2, ("plugin.wasm", tar::EntryType::Symlink, b"")), "it is a symbolic link"),
        ("hard link", with(4, ("card.md", tar::EntryType::Link, b"")), "it is a hard link"),
        ("duplicate", with(3, ("plugin.wasm", regular, b"")), "it is there twice"),
        ("no index", without(0), "it is in the place of bundle.json"),
        ("no manifest", without(1), "it is in the place of manifest.json"),
        ("no plugin", without(2), "it is in the place of plugin.wasm"),
        ("no weights", without(3), "it is in the place of weights.safetensors"),
        ("no card", without(4), "card.md is missing"),
        ("bomb", bomb.finish().unwrap(), "it is compressed (gzip)"),
        ("lying size", lying, "bundle.json"),
        ("truncated", good[..good.len() / 2].to_vec(), "is cut off"),
        ("other plugin", replaced(2, b"\0asm\x0d\0\x01\0"), "plugin.wasm has 8 bytes, and manifest.json says"),
        ("changed byte", changed, "it was changed or damaged"),
        ("other manifest", replaced(1, b"{}"), "manifest.json has SHA-256"),
        ("empty", Vec::new(), "has only 0 bytes"),
        ("trailing", [&good[..], b"more"].concat(), "4 bytes follow the end"),
    ];
    for (name, bytes, says) in cases {
        let sent =
            server.request("POST", "/api/v1/models/cats/bundle", HttpPayload::Bytes("application/x-tar", &bytes));
        assert_eq!(sent.status, 422, "{name}: {}", sent.text);
        assert_eq!(sent.json()["code"], "bad_file", "{name}: {}", sent.text);
        assert!(sent.json()["error"].as_str().unwrap().contains(says), "{name}: {}", sent.text);
        let file = files.write("hostile.saggar", &bytes);
        let error = errors_of(&server, &["models", "import-bundle", &file]);
        assert!(error.contains(says), "{name}: {error}");
    }
    assert_eq!(server.get("/api/v1/models")["models"], json!([]));
    assert_eq!(stored_files(&server), Vec::<PathBuf>::new());
    assert_eq!(server.saggar_ok(&["models", "import-bundle", &path]).trim(), "cats@1");
}

#[test]
fn only_bundles_signed_by_a_trusted_key_are_accepted() {
    let files = TestFiles::new();
    let ours = TestFiles::new();
    let (_home, server) = ServerProcess::start_in_temp_dir();
    push_mlp(&server, &files, [0.0, 1.0]);
    let [release, stranger] = ["release", "stranger"].map(|name| ours.path(name));
    for name in [&release, &stranger] {
        assert_eq!(server.saggar_ok(&["key", "pair", name]).trim(), format!("{name}.pub"));
        assert_eq!(server.saggar(&["key", "pair", name]).status.code(), Some(5), "no key is replaced");
    }
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(format!("{release}.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let bundle = files.path("cats.saggar");
    server.saggar_ok(&["models", "export", "cats", &bundle]);

    let home = tempfile::tempdir().unwrap();
    let public = format!("{release}.pub");
    let strict = ServerProcess::start_with(home.path(), &["--trusted-key", &public]);
    let sign = |name: &str| {
        let secret = format!("{name}.key");
        let signature = server.saggar_ok(&["key", "sign", &bundle, "--secret-key", &secret]);
        assert_eq!(signature.trim(), format!("{bundle}.minisig"));
    };
    let error = errors_of(&strict, &["models", "import-bundle", &bundle]);
    assert!(error.contains("it has no signature"), "{error}");
    let error = errors_of(&server, &["models", "import-bundle", &bundle, "--public-key", &public]);
    assert!(error.contains("it has no signature"), "{error}");
    sign(&stranger);
    for (server, key) in [(&strict, &[][..]), (&server, &["--public-key", &public][..])] {
        let error = errors_of(server, &[&["models", "import-bundle", &bundle][..], key].concat());
        assert!(error.contains("it is signed by the key") && error.contains("can sign"), "{error}");
    }
    sign(&release);
    // The bundle is another valid one, but not the one that was signed.
    let signed = fs::read(&bundle).unwrap();
    push_mlp(&server, &files, [1.0, 0.0]);
    server.saggar_ok(&["models", "export", "cats@2", &bundle, "--force"]);
    for (server, key) in [(&strict, &[][..]), (&server, &["--public-key", &public][..])] {
        let error = errors_of(server, &[&["models", "import-bundle", &bundle][..], key].concat());
        assert!(error.contains("the file was changed after it was signed"), "{error}");
    }
    // Nothing else comes in without a signature.
    let mlp = plugin("mlp");
    let error = errors_of(&strict, &["models", "push", "cats", mlp.to_str().unwrap()]);
    assert!(error.contains("accepts only what is signed by"), "{error}");
    let onnx = strict.request("POST", "/api/v1/models/m/import", HttpPayload::Bytes("application/octet-stream", b"x"));
    assert_eq!((onnx.status, &onnx.json()["code"]), (422, &json!("bad_signature")), "{}", onnx.text);
    assert_eq!(stored_files(&strict), Vec::<PathBuf>::new());
    fs::write(&bundle, signed).unwrap();
    assert_eq!(strict.saggar_ok(&["models", "import-bundle", &bundle, "--public-key", &public]).trim(), "cats@1");
    assert_eq!(label(&strict, "cats"), 1);

    // A server does not start with text that is not a key.
    let home = tempfile::tempdir().unwrap();
    let serve = ["serve", "--device", "cpu", "--addr", "127.0.0.1:0", "--home", home.path().to_str().unwrap()];
    let refused = server.saggar(&[&serve[..], &["--trusted-key", "RWnonsense"]].concat());
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(7) && error.contains("not a public key"), "{error}");
}
