//! Functions of files, sockets and everything else that plugins do not have: each returns its own error.

use wasmtime::component::types::Type;
use wasmtime::component::{LinkerInstance, Val};

use crate::instance_state::InstanceState;

/// Errors that say that something is not permitted, in the order of preference. The first is that of files, the second
/// that of sockets, the third that of streams.
const REFUSALS: [&str; 3] = ["access", "access-denied", "closed"];

/// Defines a function that returns an error, or traps if its type has no error.
pub(super) fn define(
    instance: &mut LinkerInstance<'_, InstanceState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<()> {
    let function = format!("{interface}.{name}");
    instance.func_new(name, move |mut store, ty, arguments, results| {
        // A borrowed handle must be dropped before its call ends.
        for argument in arguments {
            if let Val::Resource(handle) = argument {
                handle.resource_drop(&mut store)?;
            }
        }
        let refusal = ty.results().next().as_ref().and_then(refusal_of);
        match (refusal, results) {
            (Some(refusal), [result]) => *result = refusal,
            _ => wasmtime::bail!("the plugin called {function}, which plugins do not have"),
        }
        Ok(())
    })
}

/// Returns the error for a function with this result, or `None` if it cannot return one.
fn refusal_of(result: &Type) -> Option<Val> {
    let Type::Result(result) = result else { return None };
    let error = match result.err()? {
        Type::Enum(error) => {
            let mut names = REFUSALS.into_iter().filter(|refusal| error.names().any(|name| name == *refusal));
            Val::Enum(names.next()?.to_owned())
        }
        Type::Variant(error) => {
            let has_case = |refusal: &&str| error.cases().any(|case| case.name == *refusal && case.ty.is_none());
            Val::Variant(REFUSALS.into_iter().find(has_case)?.to_owned(), None)
        }
        _ => return None,
    };
    Some(Val::Result(Err(Some(Box::new(error)))))
}
