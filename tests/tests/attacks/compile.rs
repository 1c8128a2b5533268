//! Attacks on compilation: small components, model files and graphs that are expensive to compile. The server must
//! remain responsive, keep no memory for them, and refuse those over a limit.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saggar_plugin::limits::COMPILES_MAX;
use saggar_plugin::{CompileChildren, CompilePurpose, CompilerMode, PluginEngine, PluginEngineConfig, PluginError};
use saggar_tests::component::{encode_leb128, plugin_with_functions, trapping_plugin};
use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, binary, child_processes, kill_9, lenet, memory_kib};

/// The time limit for any wait before a test fails. It is long because the machine can be busy.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Returns a component within every limit that takes minutes to compile: two functions with many locals, all live
/// across loops.
fn slow_component(seed: u8) -> Vec<u8> {
    const LOCALS: usize = 3_000;
    const LOOPS: usize = 2_500;
    let mut code = Vec::new();
    for at in 0..LOOPS {
        // loop; local.get a; local.set b; i32.const 0; br_if 0; end
        code.extend([0x03, 0x40, 0x20]);
        code.extend(encode_leb128((at * 7 + usize::from(seed)) % LOCALS));
        code.push(0x21);
        code.extend(encode_leb128(at % LOCALS));
        code.extend([0x20]);
        code.extend(encode_leb128((at * 3) % LOCALS));
        code.extend([0x0d, 0x00, 0x0b]);
    }
    plugin_with_functions(2, LOCALS, &code)
}

fn compile_children(pid: u32) -> Vec<u32> {
    let compiles = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"compile-child")
    };
    child_processes(pid).into_iter().filter(compiles).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_TIMEOUT, "{what} has not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn upload(server: &ServerProcess, wasm: &[u8]) -> HttpResponse {
    server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", wasm))
}

/// Uploads as `upload` does, to a server that can end meanwhile.
fn try_upload(server: &ServerProcess, wasm: &[u8]) -> Option<HttpResponse> {
    server.try_request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", wasm))
}

/// Returns whether a process is running. An ended process can be listed until its new parent waits for it.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

fn compiler_host(program: PathBuf) -> PluginEngine {
    let compiler = CompilerMode::Children(CompileChildren::new(program));
    PluginEngine::new(PluginEngineConfig { compiler, instances_max: 8, ..PluginEngineConfig::default() }).unwrap()
}

#[test]
fn a_small_component_of_many_locals_is_refused_at_once() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let wasm = plugin_with_functions(20_000, 49_999, &[]);
    assert!(wasm.len() < 400_000, "{} bytes", wasm.len());
    let began = Instant::now();
    let answer = upload(&server, &wasm);
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert!(answer.text.contains("locals in one function"), "{}", answer.text);
    let answer = upload(&server, &plugin_with_functions(20_000, 19_999, &[]));
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert!(answer.text.contains("locals in all functions"), "{}", answer.text);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let peak = memory_kib(server.pid(), "VmHWM");
    assert!(peak < 700 << 10, "the server took {peak} KiB");
    server.upload(&lenet());
}

#[test]
fn components_that_are_no_plugin_are_refused_before_compilation() {
    // Compiling would need this program, which does not exist.
    let host = compiler_host("/nonexistent/saggar".into());
    let foreign =
        wat::parse_str(r#"(component (instance $i) (export "acme:thing/main@1.0.0" (instance $i)))"#).unwrap();
    let error = host.compile(&foreign).unwrap_err();
    assert!(matches!(error, PluginError::NoExports { .. }), "{error}");
    let error = host.compile(&trapping_plugin()).unwrap_err();
    assert!(matches!(error, PluginError::Engine { .. }), "{error}");
}

#[test]
fn a_compiler_process_is_killed_at_its_deadline() {
    let host = compiler_host(binary());
    let began = Instant::now();
    let error = host.compile_for(&slow_component(0), CompilePurpose::Upload, Duration::from_millis(700)).unwrap_err();
    assert!(error.to_string().contains("takes more than 700 ms to compile"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(compile_children(std::process::id()).is_empty());
    host.compile(&trapping_plugin()).unwrap();
}

/// Returns whether a child with these limits compiles `wasm`, and its standard error.
fn run_child(wasm: &[u8], memory_bytes: u64) -> (bool, String) {
    let mut child = Command::new(binary())
        .args(["compile-child", "component", "--cpu-seconds", "600", "--memory-bytes", &memory_bytes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = [&1_u32.to_le_bytes()[..], &(wasm.len() as u64).to_le_bytes(), wasm].concat();
    let mut stdin = child.stdin.take().unwrap();
    // A child that ends early does not read everything.
    let _ = stdin.write_all(&request);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    // The ninth byte of a response marks a result.
    (output.stdout.get(8) == Some(&0), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_compiler_process_stays_within_its_memory_limit() {
    let wasm = std::fs::read(lenet()).unwrap();
    let (compiled, said) = run_child(&wasm, 1 << 30);
    assert!(compiled, "{said}");
    let (compiled, said) = run_child(&wasm, 8 << 20);
    assert!(!compiled && said.contains("memory allocation of"), "{said}");
}

#[test]
fn a_cached_component_is_loaded_without_a_compiler_process() {
    let dir = tempfile::tempdir().unwrap();
    let host = |program: PathBuf| {
        let compiler = CompilerMode::Children(CompileChildren::new(program));
        let cache_dir = Some(dir.path().to_owned());
        PluginEngine::new(PluginEngineConfig { compiler, cache_dir, instances_max: 8 }).unwrap()
    };
    let wasm = std::fs::read(lenet()).unwrap();
    let compiled = host(binary()).compile(&wasm).unwrap();
    assert!(compiled.has_trainer() && compiled.has_predictor());
    // This host cannot start a child process, so it must use the cache.
    let loaded = host("/nonexistent/saggar".into()).compile(&wasm).unwrap();
    assert_eq!(loaded.digest(), compiled.digest());
    // This one cannot either. It succeeds once an engine that compiles in its own process has filled the cache.
    assert!(host("/nonexistent/saggar".into()).compile(&trapping_plugin()).is_err());
    let in_place = PluginEngineConfig { cache_dir: Some(dir.path().to_owned()), ..PluginEngineConfig::default() };
    PluginEngine::new(in_place).unwrap().compile(&trapping_plugin()).unwrap();
    host("/nonexistent/saggar".into()).compile(&trapping_plugin()).unwrap();
}

#[test]
fn slow_uploads_are_queued_and_the_server_stays_responsive() {
    const UPLOADS: u8 = 14;
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let is_over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..UPLOADS)
            .map(|seed| {
                let server = &server;
                scope.spawn(move || try_upload(server, &slow_component(seed)))
            })
            .collect();
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Acquire) {
                most = most.max(compile_children(server.pid()).len());
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        });
        wait_until("a child", || !compile_children(server.pid()).is_empty());
        for _ in 0..20 {
            let began = Instant::now();
            server.get("/healthz");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
        // Refusals are immediate while the other uploads wait. Then the server is stopped, which also ends the others.
        wait_until("a refusal", || uploads.iter().filter(|upload| upload.is_finished()).count() >= 4);
        let pid = server.pid();
        let running = compile_children(pid);
        assert!(kill_9(pid));
        wait_until("the end of every child", || running.iter().all(|pid| !is_running(*pid)));
        let answers: Vec<_> = uploads.into_iter().filter_map(|upload| upload.join().unwrap()).collect();
        is_over.store(true, Ordering::Release);
        let most = watch.join().unwrap();
        assert!((1..=COMPILES_MAX).contains(&most), "{most} children at a time");
        answers
    });
    let busy: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(!busy.is_empty(), "nothing was refused");
    for answer in busy {
        assert!(answer.text.contains("compiler_busy"), "{}", answer.text);
        assert_eq!(answer.header("retry-after"), "1");
    }
}

#[test]
fn a_stopping_server_kills_its_compiler_processes() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| try_upload(&server, &slow_component(0)));
        wait_until("a child", || !compile_children(server.pid()).is_empty());
        let began = Instant::now();
        let status = Command::new("kill").arg(server.pid().to_string()).status().unwrap();
        assert!(status.success());
        wait_until("the end of the children", || compile_children(server.pid()).is_empty());
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        if let Some(answer) = upload.join().unwrap() {
            assert_eq!(answer.status, 503, "{}", answer.text);
        }
    });
}
