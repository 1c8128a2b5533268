use std::cell::Cell;

use wasmtime::component::Linker;
use wasmtime::{Config, Store};

use super::*;

const ANSWER: &str = r#"
    (component
      (core module $m (func (export "answer") (result i32) i32.const 42))
      (core instance $i (instantiate $m))
      (func (export "answer") (result u32) (canon lift (core func $i "answer"))))
"#;

/// A cache in a new directory, and a component to compile.
struct ArtifactCacheFixture {
    home: tempfile::TempDir,
    engine: Engine,
    wasm: Vec<u8>,
    compiled: Cell<usize>,
}

impl ArtifactCacheFixture {
    fn new() -> ArtifactCacheFixture {
        let home = tempfile::tempdir().unwrap();
        ArtifactCacheFixture {
            home,
            engine: Engine::default(),
            wasm: wat::parse_str(ANSWER).unwrap(),
            compiled: Cell::new(0),
        }
    }

    fn cache(&self) -> ArtifactCache {
        ArtifactCache::open(self.home.path(), &self.engine).unwrap()
    }

    fn component(&self, cache: &ArtifactCache) -> Component {
        let compile = || {
            self.compiled.set(self.compiled.get() + 1);
            let component = Component::from_binary(&self.engine, &self.wasm).unwrap();
            Ok(CompiledComponent { component, precompiled_bytes: None })
        };
        cache.get_or_compile(&self.engine, &Digest::of(&self.wasm), compile).unwrap()
    }

    fn file(&self, cache: &ArtifactCache) -> PathBuf {
        cache.artifact_path(&cache.artifact_key(&Digest::of(&self.wasm)))
    }
}

fn answer(engine: &Engine, component: &Component) -> u32 {
    let mut store = Store::new(engine, ());
    let instance = Linker::new(engine).instantiate(&mut store, component).unwrap();
    let function = instance.get_typed_func::<(), (u32,)>(&mut store, "answer").unwrap();
    function.call(&mut store, ()).unwrap().0
}

#[test]
fn a_cached_component_loads_and_behaves_like_the_compiled_one() {
    let bench = ArtifactCacheFixture::new();
    let compiled = bench.component(&bench.cache());
    let loaded = bench.component(&bench.cache());
    assert_eq!(bench.compiled.get(), 1, "the second component came from the file");
    assert_eq!(compiled.serialize().unwrap(), loaded.serialize().unwrap());
    assert_eq!(answer(&bench.engine, &compiled), 42);
    assert_eq!(answer(&bench.engine, &loaded), 42);
}

#[test]
fn invalid_cache_files_are_recompiled() {
    let bench = ArtifactCacheFixture::new();
    let cache = bench.cache();
    bench.component(&cache);
    let file = bench.file(&cache);
    let whole = fs::read(&file).unwrap();
    let mut broken: Vec<Vec<u8>> = vec![Vec::new()];
    let cuts = (1..HEADER_BYTES).step_by(7).chain((HEADER_BYTES..whole.len()).step_by(4096)).chain([whole.len() - 1]);
    broken.extend(cuts.map(|cut| whole[..cut].to_vec()));
    // Flip one bit in each region: magic, format, key, length, digest, and throughout the payload.
    for at in [0, 8, 12, 44, 52].into_iter().chain((HEADER_BYTES..whole.len()).step_by(1009)) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        broken.push(flipped);
    }
    let mut longer = whole.clone();
    longer.push(0);
    broken.push(longer);
    for bytes in broken {
        fs::write(&file, &bytes).unwrap();
        let before = bench.compiled.get();
        assert_eq!(answer(&bench.engine, &bench.component(&cache)), 42);
        assert_eq!(bench.compiled.get(), before + 1, "{} bytes were loaded", bytes.len());
        assert_eq!(fs::read(&file).unwrap(), whole, "the file was not written again");
    }
}

#[test]
fn engines_with_other_settings_do_not_share_cache_files() {
    let bench = ArtifactCacheFixture::new();
    let cache = bench.cache();
    bench.component(&cache);
    let other = Engine::new(Config::new().cranelift_nan_canonicalization(true)).unwrap();
    let other_cache = ArtifactCache::open(bench.home.path(), &other).unwrap();
    assert_ne!(cache.engine, other_cache.engine);
    // Even under the other engine's file name, the key inside the file does not match.
    fs::copy(bench.file(&cache), bench.file(&other_cache)).unwrap();
    let key = other_cache.artifact_key(&Digest::of(&bench.wasm));
    let refused = other_cache.load(&other, &bench.file(&other_cache), &key);
    assert!(matches!(
        refused,
        Err(ArtifactLoadError::Invalid("it was made by another engine or for another processor"))
    ));
}

#[test]
fn a_valid_header_around_invalid_machine_code_is_rejected() {
    let bench = ArtifactCacheFixture::new();
    let cache = bench.cache();
    let key = cache.artifact_key(&Digest::of(&bench.wasm));
    cache.write(&bench.file(&cache), &key, b"not what the engine writes").unwrap();
    assert_eq!(answer(&bench.engine, &bench.component(&cache)), 42);
    assert_eq!(bench.compiled.get(), 1);
}

#[cfg(unix)]
#[test]
fn a_cache_directory_writable_by_others_is_emptied_and_made_private() {
    use std::os::unix::fs::PermissionsExt;

    let bench = ArtifactCacheFixture::new();
    bench.component(&bench.cache());
    let dir = bench.home.path().join("plugins");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let cache = bench.cache();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    bench.component(&cache);
    assert_eq!(bench.compiled.get(), 2);
}

#[cfg(unix)]
#[test]
fn a_cache_file_writable_by_others_is_recompiled() {
    use std::os::unix::fs::PermissionsExt;

    let bench = ArtifactCacheFixture::new();
    let cache = bench.cache();
    bench.component(&cache);
    // The permissions change after the cache was opened, as if a directory above it had been replaced.
    for (mode, compiled) in [(0o620, 2), (0o602, 3), (0o644, 3)] {
        fs::set_permissions(bench.file(&cache), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(answer(&bench.engine, &bench.component(&cache)), 42);
        assert_eq!(bench.compiled.get(), compiled, "{mode:o}");
    }
}

#[test]
fn the_oldest_cache_files_are_pruned() {
    let bench = ArtifactCacheFixture::new();
    let cache = bench.cache();
    for number in 0..ARTIFACTS_MAX as u64 + 3 {
        let key = Digest::of(&number.to_le_bytes());
        cache.write(&cache.artifact_path(&key), &key, b"").unwrap();
    }
    assert_eq!(fs::read_dir(bench.home.path().join("plugins")).unwrap().count(), ARTIFACTS_MAX);
}
