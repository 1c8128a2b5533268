//! Rust bindings of the WIT package. The only place that calls `bindgen!`.
//!
//! They are generated from one world that includes every interface: a component can import less of it and export any
//! part. Exports are therefore looked up one interface at a time (`exports::..::GuestIndices`), never through the type
//! of the world.

#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::all,
    reason = "generated from the documented WIT files, by the same generator that wasmtime is tested with"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "any-plugin",
    imports: { default: trappable },
    trappable_error_type: { "saggar:plugin/tensors.error" => crate::host_error::HostError },
    with: {
        "saggar:plugin/tensors.tensor": crate::tensors::device_tensor::DeviceTensor,
        "saggar:plugin/variables.variable": crate::variables::device_variable::DeviceVariable,
        "saggar:plugin/variables.variables": crate::variables::namespace::VariableNamespace,
        "saggar:plugin/graphs.operand": crate::graphs::pending_graph::GraphOperand,
        "saggar:plugin/graphs.graph-builder": crate::graphs::pending_graph::BuilderHandle,
        "saggar:plugin/graphs.graph": crate::graphs::compiled_graph::CompiledGraph,
        "saggar:plugin/datasets.dataset": crate::datasets::batch_iterator::MountedDataset,
        "saggar:plugin/datasets.batches": crate::datasets::batch_iterator::BatchIterator,
    },
});

pub(crate) use self::exports::saggar::plugin::{http_handler, importer, predictor, step, trainer};
pub(crate) use self::saggar::plugin::{datasets, graphs, http_stream, job, logging, replies, tensors, variables};

/// Types of WASI's interfaces, which `crate::wasi` defines function by function.
pub(crate) mod wasi {
    use wasmtime::component::{ComponentType, Lift, Lower, Resource};

    use crate::wasi_state::StreamFailure;

    /// `wasi:clocks/wall-clock.datetime`.
    #[derive(Clone, Copy, Debug, ComponentType, Lift, Lower)]
    #[component(record)]
    pub(crate) struct WasiDatetime {
        pub(crate) seconds: u64,
        pub(crate) nanoseconds: u32,
    }

    /// `wasi:io/streams.stream-error`.
    #[derive(Debug, ComponentType, Lift, Lower)]
    #[component(variant)]
    pub(crate) enum StreamError {
        #[component(name = "last-operation-failed")]
        LastOperationFailed(Resource<StreamFailure>),
        #[component(name = "closed")]
        Closed,
    }
}
