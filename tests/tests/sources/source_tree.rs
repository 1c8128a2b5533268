//! Tests of the source tree: crate layers, file sizes, names, and forbidden code.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeSet;
use std::path::Path;

use saggar_tests::{relative_path, root, source_files};

/// The layer of each crate. A crate imports only crates of a lower layer.
const FLOORS: [(&str, u32); 29] = [
    ("charts", 0),
    ("tensor", 0),
    ("clock", 0),
    ("metrics", 0),
    ("python-env", 0),
    ("rest", 0),
    ("wasm-build", 0),
    ("compile", 1),
    ("notebook", 1),
    ("store", 1),
    ("project", 1),
    ("telemetry", 1),
    ("top", 1),
    ("device", 2),
    ("fetch", 2),
    ("testgen", 2),
    ("cpu", 3),
    ("gpu", 3),
    ("devices", 4),
    ("plugin", 5),
    ("reference-plugins", 6),
    ("replay", 6),
    ("jobs", 7),
    ("serving", 7),
    ("kubernetes", 8),
    ("pipelines", 8),
    ("sweeps", 8),
    ("serve", 9),
    ("cli", 10),
];

const FILE_LINES_MAX: usize = 500;

/// Returns the code of a source file, without line comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

#[test]
fn crates_import_only_lower_floors() {
    let floor = |name: &str| FLOORS.iter().find(|(crate_, _)| *crate_ == name).map(|(_, floor)| *floor);
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("host")).unwrap() {
        let path = entry.unwrap().path();
        // Python clients, packages, and the pages of the documentation.
        if !path.is_dir() || ["clients", "dist", "docs"].iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let own = floor(&name).unwrap_or_else(|| panic!("host/{name} has no floor"));
        let manifest: toml::Table = std::fs::read_to_string(path.join("Cargo.toml")).unwrap().parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        for dependency in dependencies.keys().filter_map(|key| key.strip_prefix("saggar-")) {
            let below = floor(dependency).unwrap();
            assert!(below < own, "{name} (floor {own}) imports {dependency} (floor {below})");
        }
        seen.insert(name);
    }
    assert_eq!(seen.len(), FLOORS.len(), "a floor without a crate");
}

#[test]
fn the_top_level_is_as_agreed() {
    let agreed: BTreeSet<&str> = [
        "Cargo.toml",
        "Cargo.lock",
        "host",
        "plugins",
        "wit",
        "examples",
        "tests",
        "README.md",
        "SECURITY.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "Makefile",
        "target",
    ]
    .into();
    for entry in std::fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(name.starts_with('.') || agreed.contains(&*name), "{name} does not belong at the top level");
    }
}

#[test]
fn no_file_is_too_long() {
    let sources =
        source_files(&["host", "plugins", "wit", "tests", "examples"], &["rs", "wit", "wgsl", "js", "css", "py", "sh"]);
    for path in sources {
        // Third-party files are as published.
        if path.parent().is_some_and(|dir| dir.ends_with("console/vendor")) {
            continue;
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(
            lines <= FILE_LINES_MAX,
            "{} has {lines} lines, at most {FILE_LINES_MAX} are allowed",
            relative_path(&path)
        );
    }
}

#[test]
fn no_file_has_a_generic_name() {
    for path in source_files(&["host", "plugins", "tests"], &["rs"]) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !["utils", "util", "helpers", "helper", "common", "base", "manager"].contains(&&*stem),
            "{}",
            relative_path(&path)
        );
    }
}

#[test]
fn every_source_file_has_a_module_comment() {
    for path in source_files(&["host", "plugins", "tests"], &["rs"]) {
        // A module's tests need no header, because the module has one.
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().find(|line| !line.starts_with("#!")).unwrap_or("");
        assert!(first.starts_with("//!"), "{} begins with {first:?}, not with a //! header", relative_path(&path));
    }
}

#[test]
fn pure_floors_do_no_input_or_output() {
    for path in source_files(&["host/tensor/src", "host/compile/src", "host/project/src"], &["rs"]) {
        let code = code(&path);
        for banned in ["std::fs", "std::net", "std::time", "std::env", "std::thread", "async fn", "println!", "tokio"] {
            let in_tests =
                path.to_string_lossy().contains("test") || banned == "println!" && code.contains("#[cfg(test)]");
            assert!(in_tests || !code.contains(banned), "{} uses {banned}", relative_path(&path));
        }
    }
}

#[test]
fn each_foreign_interface_is_used_in_one_place() {
    let rules: [(&str, &str, &[&str]); 7] = [
        ("bindgen!", "host", &["host/plugin/src/bindings.rs"]),
        (
            "StatusCode",
            "host/serve/src",
            &[
                "host/serve/src/error.rs",
                "host/serve/src/error/access.rs",
                "host/serve/src/error/protocol_error.rs",
                "host/serve/src/error/serving.rs",
                "host/serve/src/error/status_map.rs",
                "host/serve/src/error/mlflow.rs",
                "host/serve/src/error/success.rs",
            ],
        ),
        ("wasmtime::", "host/serve/src", &[]),
        ("wgpu::", "host/serve/src", &[]),
        ("wasmtime::", "host/serving/src", &[]),
        ("wgpu::", "host/serving/src", &[]),
        // Only `access::visibility` decides whether a job is visible to a request.
        ("jobs().get(", "host/serve/src", &[]),
    ];
    for (word, dir, allowed) in rules {
        for path in source_files(&[dir], &["rs"]) {
            let here = allowed.contains(&&*relative_path(&path)) || relative_path(&path).contains("test");
            assert!(here || !code(&path).contains(word), "{} uses {word}", relative_path(&path));
        }
    }
}

/// Models are served independently of the protocol. `serve` alone maps errors to HTTP.
#[test]
fn the_serving_crate_contains_no_http() {
    let manifest: toml::Table =
        std::fs::read_to_string(root().join("host/serving/Cargo.toml")).unwrap().parse().unwrap();
    for section in ["dependencies", "dev-dependencies"] {
        for dependency in manifest[section].as_table().unwrap().keys() {
            let is_http =
                ["axum", "http", "hyper", "tower", "saggar-serve"].iter().any(|it| dependency.starts_with(it));
            assert!(!is_http || dependency == "saggar-serving", "host/serving depends on {dependency}");
        }
    }
    for path in source_files(&["host/serving"], &["rs"]) {
        for word in ["StatusCode", "ApiError", "axum", "http::", "hyper", "HeaderMap"] {
            assert!(!code(&path).contains(word), "{} uses {word}", relative_path(&path));
        }
    }
}

#[test]
fn operator_families_have_a_file_in_every_crate_that_implements_them() {
    let families = ["unary", "binary", "reduce", "movement", "contract", "convolution", "index", "source"];
    for dir in ["host/tensor/src/op", "host/tensor/src/infer", "host/tensor/src/interp"] {
        for family in families {
            assert!(root().join(dir).join(format!("{family}.rs")).is_file(), "{dir}/{family}.rs is missing");
        }
    }
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let agreed = [
        "host/cli/src/allocator.rs",
        "host/devices/benches/peers/gemm.rs",
        "host/cpu/src/simd.rs",
        "host/cpu/src/threads/thread_pool.rs",
        "host/cpu/src/vector/arm.rs",
        "host/cpu/src/vector/x86.rs",
        "host/gpu/src/vram.rs",
        "host/gpu/src/pipeline_cache.rs",
        "host/gpu/src/shader.rs",
        "host/plugin/src/artifact.rs",
        "host/store/src/dataset/map.rs",
        "plugins/sdk/src/bindings.rs",
    ];
    for path in source_files(&["host", "plugins"], &["rs"]) {
        let found = code(&path).split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
        assert!(!found || agreed.contains(&&*relative_path(&path)), "{} has unsafe code", relative_path(&path));
    }
}

#[test]
fn nothing_built_is_committed() {
    let tracked = std::process::Command::new("git").arg("ls-files").current_dir(root()).output();
    let Ok(tracked) = tracked else {
        println!("SKIP: git is not here");
        return;
    };
    let tracked = String::from_utf8(tracked.stdout).unwrap();
    let built: Vec<&str> =
        tracked.lines().filter(|name| name.ends_with(".wasm") || name.contains("/target/")).collect();
    // A component of an older guest library cannot be built from this tree.
    let built: Vec<&str> = built.into_iter().filter(|name| !name.starts_with("tests/older-plugins/")).collect();
    assert!(built.is_empty(), "{built:?}");
}

/// The names in backquotes of the README's table are exports of the guest library.
#[test]
fn the_guest_library_table_lists_every_export() {
    let page = std::fs::read_to_string(root().join("plugins/README.md")).unwrap();
    let rows: String = page.lines().filter(|line| line.starts_with("| ")).collect();
    let documented: BTreeSet<&str> = rows.split('`').skip(1).step_by(2).flat_map(|name| name.split("::")).collect();
    let mut exported = 0;
    for path in source_files(&["plugins/sdk/src/layers", "plugins/sdk/src/optimizers"], &["rs"]) {
        let code = code(&path);
        for line in code.lines() {
            let item = ["pub struct ", "pub enum ", "pub fn "].iter().find_map(|start| line.strip_prefix(start));
            let Some(item) = item else { continue };
            let name = item.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            assert!(
                documented.contains(name),
                "{name} of {} is not in the table of plugins/README.md",
                relative_path(&path)
            );
            exported += 1;
        }
    }
    for path in ["plugins/sdk/src/losses.rs", "plugins/sdk/src/png.rs"] {
        for item in code(&root().join(path)).split("\npub fn ").skip(1) {
            let name = item.split('(').next().unwrap();
            assert!(documented.contains(name), "{name} of {path} is not in the table of plugins/README.md");
            exported += 1;
        }
    }
    assert!(exported > 15, "{exported} exported items were found");
}

/// Returns the value that a plugin's code uses if this parameter is not given: the literal, or the constant's.
fn default_in_code(code: &str, name: &str) -> Option<String> {
    let after = code.split(&format!("param(\"{name}\", ")).nth(1);
    let after = after.or_else(|| code.split(&format!("hparams.get(\"{name}\", ")).nth(1))?;
    let value = after.split(')').next()?.trim_end_matches(".to_owned(").trim_matches('"').replace('_', "");
    if value.starts_with(char::is_uppercase) {
        let constant = code.split(&format!("const {}: ", after.split(')').next()?)).nth(1)?;
        return Some(constant.split("= ").nth(1)?.split(';').next()?.to_owned());
    }
    Some(value)
}

#[test]
fn declared_parameter_defaults_match_the_code() {
    let mut checked = 0;
    for manifest in source_files(&["plugins"], &["toml"]).iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = std::fs::read_to_string(manifest).unwrap();
        // The host gives a step the defaults of its inputs, so its code has none.
        let text = text.split("[package.metadata.saggar.inputs]").next().unwrap();
        let code: String = source_files(&[&relative_path(manifest.parent().unwrap())], &["rs"])
            .iter()
            .map(|path| code(path))
            .collect();
        for line in text.lines().filter(|line| line.contains("{ type = ") && line.contains("default = ")) {
            let name = line.split(" = ").next().unwrap();
            let declared = line.split("default = ").nth(1).unwrap().split([',', ' ']).next().unwrap().trim_matches('"');
            // The first choice is the library's default.
            let first = line.split("choices = [\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
            let default = first.or_else(|| default_in_code(&code, name));
            assert_eq!(default.as_deref(), Some(declared), "{}: {name}", relative_path(manifest));
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} defaults were found");
}
