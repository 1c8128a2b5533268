//! Builds a plugin written in C: the header of its world is generated, clang compiles it with the plugin's sources to a
//! core module for WASI, which is encoded as a component.

mod manifest;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use saggar_plugin::{PluginDeclarations, WIT_FILES};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

use super::error::BuildError;
use super::staging::write_files;
use super::{BuiltComponent, PluginLanguage, command};
use manifest::CManifest;

/// The directory of the plugin's sources.
const SOURCE: &str = "src";
/// WASI's C library, without its system: a plugin that calls a function of the system is refused.
const TARGET: &str = "--target=wasm32-wasi";
const COMPILER: &str = "clang";
const FLAGS: [&str; 6] = ["-mexec-model=reactor", "-O2", "-std=c11", "-Wall", "-Wextra", "-Wl,--strip-debug"];
const TOOLS_HINT: &str = "on Debian `apt install clang lld wasi-libc libclang-rt-dev-wasm32`";
/// What clang and the linker say if a part of the toolchain is missing.
const MISSING_PARTS: [&str; 4] =
    ["'stdlib.h' file not found", "crt1-reactor.o", "libclang_rt.builtins-wasm32.a", "unable to execute command"];

/// C: a directory with a `plugin.toml`.
pub(super) struct CLanguage;

impl PluginLanguage for CLanguage {
    fn name(&self) -> &'static str {
        "C"
    }

    fn manifest(&self) -> &'static str {
        manifest::FILE
    }

    fn build(&self, directory: &Path, _quiet: bool) -> Result<BuiltComponent, BuildError> {
        let manifest = CManifest::read(directory)?;
        let output = directory.join("target/saggar");
        let staging = output.join("c");
        let bindings = Bindings::write(&staging, &manifest)?;
        let sources = list_sources(&directory.join(SOURCE))?;
        let module = compile(directory, &staging, &bindings, &sources)?;
        let bytes = encode_component(&module, &manifest.declarations)?;
        Ok(BuiltComponent { name: manifest.name, directory: output, bytes })
    }

    fn find_tools(&self) -> Result<String, BuildError> {
        // A program that is compiled and linked needs every part of the toolchain.
        let staging = create_temporary_directory()?;
        let source = staging.join("check.c");
        let io = |source| BuildError::Io { path: staging.clone(), source };
        fs::write(&source, "#include <stdlib.h>\nint check(void) { return abs(-1); }\n").map_err(io)?;
        let mut clang = clang();
        clang.arg(&source).arg("-o").arg(staging.join("check.wasm"));
        let linked = run_clang(&mut clang);
        let _ = fs::remove_dir_all(&staging);
        let linked = linked?;
        match linked.status.success() {
            true => Ok("clang and WASI's C library".to_owned()),
            false => Err(missing_clang(command::error_text(&linked))),
        }
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        Ok(CManifest::read(directory)?.declarations)
    }
}

/// Creates a directory for temporary files that no other process uses.
fn create_temporary_directory() -> Result<PathBuf, BuildError> {
    let path = std::env::temp_dir().join(format!("saggar-{}-{}", std::process::id(), saggar_store::random_hex::<8>()));
    fs::create_dir(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
    Ok(path)
}

/// The generated files of a world.
struct Bindings {
    /// The directory of its header, which the plugin includes.
    directory: PathBuf,
    /// What is compiled and linked with the plugin.
    parts: Vec<PathBuf>,
}

impl Bindings {
    /// Generates the files of the manifest's world.
    fn write(staging: &Path, manifest: &CManifest) -> Result<Bindings, BuildError> {
        let wit = staging.join("wit");
        let directory = staging.join("bindings");
        let at = |path: &Path| {
            let path = path.to_owned();
            |source| BuildError::Io { path, source }
        };
        // Not what an earlier version of this program has left there.
        for old in [&wit, &directory] {
            let _ = fs::remove_dir_all(old);
        }
        write_files(&WIT_FILES, &wit).map_err(at(&wit))?;
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        let files = generate(&wit, &manifest.world)
            .map_err(|reason| BuildError::Manifest { path: PathBuf::from(manifest::FILE), reason })?;
        let mut parts = Vec::new();
        for (name, bytes) in files.iter() {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(at(&path))?;
            if path.extension() != Some(OsStr::new("h")) {
                parts.push(path);
            }
        }
        Ok(Bindings { directory, parts })
    }
}

fn text(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

/// Returns the generated files of a world.
fn generate(wit: &Path, world: &str) -> Result<Files, String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).map_err(text)?;
    let world = resolve.select_world(&[package], Some(world)).map_err(text)?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files).map_err(text)?;
    Ok(files)
}

/// Returns the C files of the directory, sorted.
fn list_sources(directory: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let at = |source| BuildError::Io { path: directory.to_owned(), source };
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory).map_err(at)? {
        let path = entry.map_err(at)?.path();
        if path.extension() == Some(OsStr::new("c")) {
            sources.push(path);
        }
    }
    if sources.is_empty() {
        return Err(BuildError::Manifest { path: directory.to_owned(), reason: "there are no .c files".to_owned() });
    }
    sources.sort();
    Ok(sources)
}

/// Returns the compiler with the options of every plugin.
fn clang() -> Command {
    let mut clang = Command::new(COMPILER);
    clang.arg(TARGET).args(FLAGS).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    clang
}

fn run_clang(clang: &mut Command) -> Result<Output, BuildError> {
    command::run_to_completion(clang).map_err(|error| missing_clang(error.to_string()))
}

fn missing_clang(reason: String) -> BuildError {
    BuildError::MissingTool {
        tool: "clang with lld, WASI's C library and its builtins",
        reason,
        hint: TOOLS_HINT.to_owned(),
    }
}

/// Compiles and links the sources to a core module.
fn compile(directory: &Path, staging: &Path, bindings: &Bindings, sources: &[PathBuf]) -> Result<Vec<u8>, BuildError> {
    let module = staging.join("module.wasm");
    let mut clang = clang();
    clang.arg("-I").arg(&bindings.directory).arg("-I").arg(directory.join(SOURCE));
    clang.args(sources).args(&bindings.parts).arg("-o").arg(&module);
    let output = run_clang(&mut clang)?;
    let messages = command::error_text(&output);
    if !output.status.success() && MISSING_PARTS.iter().any(|part| messages.contains(part)) {
        return Err(missing_clang(messages));
    }
    if output.status.success() && !messages.is_empty() {
        tracing::warn!("{messages}");
    }
    command::check(COMPILER, output)?;
    fs::read(&module).map_err(|source| BuildError::Io { path: module, source })
}

/// Encodes a core module as a component.
///
/// # Errors
/// `NotAComponent` if it imports something of the system, such as `printf` does, or lacks an export.
fn encode_component(module: &[u8], declarations: &PluginDeclarations) -> Result<Vec<u8>, BuildError> {
    saggar_plugin::encode_component(module, declarations).map_err(|reason| BuildError::NotAComponent {
        reason: format!("{reason} (functions of the system, such as printf and time, do not exist in a plugin)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_world_of_a_plugin_has_c_bindings() {
        let wit = tempfile::tempdir().unwrap();
        write_files(&WIT_FILES, wit.path()).unwrap();
        for world in saggar_plugin::plugin_worlds().unwrap() {
            let files = generate(wit.path(), &world.name).unwrap();
            let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
            let base = world.name.replace('-', "_");
            for end in [".h", ".c", "_component_type.o"] {
                assert!(names.contains(&format!("{base}{end}").as_str()), "{}: {names:?}", world.name);
            }
        }
        assert!(generate(wit.path(), "pluto").is_err());
    }

    #[test]
    fn a_directory_without_sources_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(list_sources(&dir.path().join("src")), Err(BuildError::Io { .. })));
        let error = list_sources(dir.path()).unwrap_err().to_string();
        assert!(error.contains("there are no .c files"), "{error}");
    }
}
