//! The functions of WASI that do something.

use wasmtime::component::{LinkerInstance, Resource};
use wasmtime::{StoreContextMut, bail};

use super::{AbsentResource, InputStream, OutputStream, WasiPollable};
use crate::bindings::wasi::{StreamError, WasiDatetime};
use crate::instance_state::InstanceState;
use crate::job_context::LogLevel;

const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// The time of all clocks: the first second of 2000, UTC. Not zero, because that is before the first date of some
/// formats.
const WALL_CLOCK_SECONDS: u64 = 946_684_800;
/// Bytes that one write to a stream can have.
const WRITE_BYTES_MAX: u64 = 64 << 10;
/// Random bytes that one call can request.
const RANDOM_BYTES_MAX: u64 = 1 << 20;

type Store<'a> = StoreContextMut<'a, InstanceState>;
type StreamResult<T> = wasmtime::Result<(Result<T, StreamError>,)>;

/// Defines a function, or returns `None` if it is not one of those that do something.
pub(super) fn define(
    instance: &mut LinkerInstance<'_, InstanceState>,
    interface: &str,
    name: &str,
) -> Option<wasmtime::Result<()>> {
    match interface.strip_prefix("wasi:")? {
        "cli/environment" => define_environment(instance, name),
        "cli/exit" if name == "exit" => Some(instance.func_wrap(name, exit)),
        "cli/stdin" => {
            Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((Resource::<InputStream>::new_own(STDIN),))))
        }
        "cli/stdout" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((stream(STDOUT),)))),
        "cli/stderr" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((stream(STDERR),)))),
        "cli/terminal-stdin" | "cli/terminal-stdout" | "cli/terminal-stderr" => {
            Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((None::<Resource<AbsentResource>>,))))
        }
        "clocks/monotonic-clock" => define_monotonic_clock(instance, name),
        "clocks/wall-clock" => define_wall_clock(instance, name),
        "filesystem/preopens" => {
            Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((Vec::<(Resource<AbsentResource>, String)>::new(),))))
        }
        "io/poll" => define_poll(instance, name),
        "io/streams" => define_streams(instance, name),
        "random/random" | "random/insecure" | "random/insecure-seed" => define_random(instance, name),
        "sockets/instance-network" => {
            Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((Resource::<AbsentResource>::new_own(0),))))
        }
        _ => None,
    }
}

fn define_environment(instance: &mut LinkerInstance<'_, InstanceState>, name: &str) -> Option<wasmtime::Result<()>> {
    match name {
        "get-environment" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((Vec::<(String, String)>::new(),)))),
        "get-arguments" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((Vec::<String>::new(),)))),
        "initial-cwd" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((None::<String>,)))),
        _ => None,
    }
}

fn exit(_: Store<'_>, (_,): (Result<(), ()>,)) -> wasmtime::Result<()> {
    bail!("the plugin called exit: it must return instead")
}

fn define_monotonic_clock(
    instance: &mut LinkerInstance<'_, InstanceState>,
    name: &str,
) -> Option<wasmtime::Result<()>> {
    match name {
        "now" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((0_u64,)))),
        "resolution" => Some(instance.func_wrap(name, |_: Store<'_>, ()| Ok((1_u64,)))),
        "subscribe-instant" | "subscribe-duration" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (u64,)| Ok((ready(),))))
        }
        _ => None,
    }
}

fn define_wall_clock(instance: &mut LinkerInstance<'_, InstanceState>, name: &str) -> Option<wasmtime::Result<()>> {
    let datetime = match name {
        "now" => WasiDatetime { seconds: WALL_CLOCK_SECONDS, nanoseconds: 0 },
        "resolution" => WasiDatetime { seconds: 0, nanoseconds: 1 },
        _ => return None,
    };
    Some(instance.func_wrap(name, move |_: Store<'_>, ()| Ok((datetime,))))
}

fn define_poll(instance: &mut LinkerInstance<'_, InstanceState>, name: &str) -> Option<wasmtime::Result<()>> {
    match name {
        "[method]pollable.ready" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (Resource<WasiPollable>,)| Ok((true,))))
        }
        "[method]pollable.block" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (Resource<WasiPollable>,)| Ok(())))
        }
        "poll" => Some(instance.func_wrap(name, |_: Store<'_>, (events,): (Vec<Resource<WasiPollable>>,)| {
            Ok(((0_u32..).take(events.len()).collect::<Vec<u32>>(),))
        })),
        _ => None,
    }
}

fn define_streams(instance: &mut LinkerInstance<'_, InstanceState>, name: &str) -> Option<wasmtime::Result<()>> {
    match name {
        "[method]input-stream.subscribe" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (Resource<InputStream>,)| Ok((ready(),))))
        }
        "[method]output-stream.subscribe" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (Resource<OutputStream>,)| Ok((ready(),))))
        }
        "[method]output-stream.check-write" => {
            Some(instance.func_wrap(name, |_: Store<'_>, (_,): (Resource<OutputStream>,)| -> StreamResult<u64> {
                Ok((Ok(WRITE_BYTES_MAX),))
            }))
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            Some(instance.func_wrap(name, write))
        }
        // The log has every finished line already, and an unfinished one waits for its end.
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => Some(
            instance
                .func_wrap(name, |_: Store<'_>, (_,): (Resource<OutputStream>,)| -> StreamResult<()> { Ok((Ok(()),)) }),
        ),
        _ => None,
    }
}

fn write(mut store: Store<'_>, (to, bytes): (Resource<OutputStream>, Vec<u8>)) -> StreamResult<()> {
    let state = store.data_mut();
    let (output, level) = match to.rep() {
        STDERR => (&mut state.wasi.stderr, LogLevel::Warn),
        _ => (&mut state.wasi.stdout, LogLevel::Info),
    };
    for line in output.push(&bytes) {
        state.log_line(level, &line);
    }
    Ok((Ok(()),))
}

fn define_random(instance: &mut LinkerInstance<'_, InstanceState>, name: &str) -> Option<wasmtime::Result<()>> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => Some(instance.func_wrap(name, random_bytes)),
        "get-random-u64" | "get-insecure-random-u64" => {
            Some(instance.func_wrap(name, |mut store: Store<'_>, ()| Ok((store.data_mut().wasi.random.next_u64(),))))
        }
        "insecure-seed" => Some(instance.func_wrap(name, |mut store: Store<'_>, ()| {
            let random = &mut store.data_mut().wasi.random;
            Ok(((random.next_u64(), random.next_u64()),))
        })),
        _ => None,
    }
}

fn random_bytes(mut store: Store<'_>, (count,): (u64,)) -> wasmtime::Result<(Vec<u8>,)> {
    match usize::try_from(count) {
        Ok(bytes) if count <= RANDOM_BYTES_MAX => Ok((store.data_mut().wasi.random.next_bytes(bytes),)),
        _ => bail!("the plugin requested {count} random bytes at once; the limit is {RANDOM_BYTES_MAX}"),
    }
}

fn stream(descriptor: u32) -> Resource<OutputStream> {
    Resource::new_own(descriptor)
}

fn ready() -> Resource<WasiPollable> {
    Resource::new_own(0)
}
