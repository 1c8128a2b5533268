//! The WASI interfaces of plugins that are compiled by other toolchains than Rust's, such as componentize-py: an
//! environment that holds nothing and in which nothing changes.
//!
//! Standard output and error go line by line to the job's log, or to the server's. Clocks are frozen, and random
//! numbers depend only on the job's seed, so that a training has the same bits in every run. There are no files,
//! sockets, environment variables or arguments: every function that would need them returns an error. Only components
//! that import `wasi:` get these interfaces.
//!
//! The crate `wasmtime-wasi` is not used. It adds 11 crates, a file system and a network stack to this process, which a
//! configuration would have to keep out of reach. Here, they do not exist.

mod functions;
mod refusal;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType};

use crate::instance_state::InstanceState;
use crate::wasi_state::StreamFailure;

/// Packages whose interfaces a plugin can import.
const PACKAGES: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
/// Versions of these packages.
const VERSIONS: &str = "0.2.";

/// Returns whether an import is an interface of WASI that plugins have.
pub(crate) fn is_provided(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else { return false };
    version.starts_with(VERSIONS) && PACKAGES.iter().any(|package| interface.starts_with(package))
}

/// Returns whether an import belongs to WASI.
pub(crate) fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

/// Returns whether a component imports WASI.
pub(crate) fn is_imported_by(component: &Component) -> bool {
    component.component_type().imports(component.engine()).any(|(name, _)| is_wasi(name))
}

/// Defines the WASI interfaces that the component imports, exactly the functions of the version that it was built for.
///
/// # Errors
/// If a definition is rejected, because the component imports something under two names.
pub(crate) fn add_to_linker(linker: &mut Linker<InstanceState>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (name, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(interface) = item.ty else { continue };
        if !is_provided(name) {
            continue;
        }
        let mut instance = linker.instance(name)?;
        let interface_name = name.split('@').next().unwrap_or(name);
        for (item_name, item) in interface.exports(engine) {
            define(&mut instance, interface_name, item_name, &item.ty)?;
        }
    }
    Ok(())
}

fn define(
    instance: &mut LinkerInstance<'_, InstanceState>,
    interface: &str,
    name: &str,
    item: &ComponentItem,
) -> wasmtime::Result<()> {
    match item {
        ComponentItem::Resource(_) => instance.resource(name, resource_type(name), |_, _| Ok(())),
        ComponentItem::ComponentFunc(_) => match functions::define(instance, interface, name) {
            Some(defined) => defined,
            None => refusal::define(instance, interface, name),
        },
        // Types of values need no definition; nothing else occurs in an interface.
        _ => Ok(()),
    }
}

/// Returns the host's type of a resource. Interfaces that use a resource of another one list it again under its name.
fn resource_type(name: &str) -> ResourceType {
    match name {
        "input-stream" => ResourceType::host::<InputStream>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "pollable" => ResourceType::host::<WasiPollable>(),
        "error" => ResourceType::host::<StreamFailure>(),
        _ => ResourceType::host::<AbsentResource>(),
    }
}

/// Standard input, which is at its end.
#[derive(Debug)]
pub(crate) struct InputStream;

/// Standard output or error: the handle's number is that of the file descriptor.
#[derive(Debug)]
pub(crate) struct OutputStream;

/// An event that has happened already, since there is no time to wait for.
#[derive(Debug)]
pub(crate) struct WasiPollable;

/// Files, directories, sockets and terminals, which do not exist, and the network, which refuses everything.
#[derive(Debug)]
pub(crate) struct AbsentResource;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_of_wasi_0_2_are_provided() {
        assert!(is_provided("wasi:cli/stdout@0.2.0") && is_provided("wasi:sockets/tcp@0.2.9"));
        assert!(!is_provided("wasi:cli/stdout@0.3.0") && !is_provided("wasi:cli/stdout"));
        assert!(!is_provided("wasi:http/types@0.2.0") && !is_provided("wasi:nn/tensor@0.2.0-rc"));
        assert!(!is_provided("saggar:plugin/tensors@0.1.0"));
    }
}
