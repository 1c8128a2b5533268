//! Errors of host functions: they are returned to the plugin or trap it.

use saggar_compile::CompileError;
use saggar_device::DeviceError;
use saggar_store::DatasetError;
use saggar_tensor::{GraphError, MicroBatchError, ShapeError};
use wasmtime::component::ResourceTableError;

use crate::error::PluginError;
use crate::guest_error_code::GuestErrorCode;

/// An error as a plugin gets it.
#[derive(Clone, Debug)]
pub(crate) struct ReturnedError {
    pub(crate) code: GuestErrorCode,
    pub(crate) message: String,
    /// The name of the file, field, variable, port or node at fault.
    pub(crate) place: Option<String>,
}

/// The reason why a host function failed.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub enum HostError {
    /// An error that is returned to the plugin.
    Answer(ReturnedError),
    /// The device failed: returned to the plugin and recorded by the host.
    Device(DeviceError),
    /// The job around the training failed: returned to the plugin and recorded by the host.
    Job(PluginError),
    /// The handle limit was exceeded: returned to the plugin and recorded by the host.
    HandlesFull,
    /// A failure that a plugin can only cause through a bug in the host.
    Trap(wasmtime::Error),
}

impl HostError {
    pub(crate) fn new(code: GuestErrorCode, message: impl Into<String>) -> HostError {
        HostError::Answer(ReturnedError { code, message: message.into(), place: None })
    }

    pub(crate) fn invalid(message: impl Into<String>) -> HostError {
        HostError::new(GuestErrorCode::InvalidArgument, message)
    }

    /// Returns an invalid argument with the name of the file, field, variable or port at fault.
    pub(crate) fn invalid_at(place: impl Into<String>, message: impl Into<String>) -> HostError {
        HostError::Answer(ReturnedError {
            code: GuestErrorCode::InvalidArgument,
            message: message.into(),
            place: Some(place.into()),
        })
    }

    pub(crate) fn not_found(place: impl Into<String>, message: impl Into<String>) -> HostError {
        HostError::Answer(ReturnedError {
            code: GuestErrorCode::NotFound,
            message: message.into(),
            place: Some(place.into()),
        })
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> HostError {
        HostError::new(GuestErrorCode::Unsupported, message)
    }

    /// Returns the error for a call whose result is no longer needed.
    pub(crate) fn cancelled() -> HostError {
        HostError::new(GuestErrorCode::Cancelled, "the result of this prediction is no longer needed")
    }

    /// Returns the error with a message that also names the operands of the refused operator.
    pub(crate) fn with_operands(self, operands: &[String]) -> HostError {
        match self {
            HostError::Answer(ReturnedError { code: GuestErrorCode::InvalidArgument, message, .. })
                if !operands.is_empty() =>
            {
                let noun = if operands.len() == 1 { "operand" } else { "operands" };
                HostError::invalid(format!("{message}; {noun}: {}", operands.join(", ")))
            }
            other => other,
        }
    }

    pub(crate) fn out_of_memory(message: impl Into<String>) -> HostError {
        HostError::new(GuestErrorCode::OutOfMemory, message)
    }
}

impl From<GraphError> for HostError {
    fn from(error: GraphError) -> HostError {
        if matches!(error.kind(), GraphError::Interrupted(_)) {
            return DeviceError::Cancelled.into();
        }
        let limits = matches!(
            error.kind(),
            GraphError::TooManyNodes
                | GraphError::TooManyOperands
                | GraphError::TooManyConstantBytes { .. }
                | GraphError::TooManyOutputs
        );
        let code = if limits { GuestErrorCode::OutOfMemory } else { GuestErrorCode::InvalidArgument };
        let place = error.place().map(str::to_owned);
        HostError::Answer(ReturnedError { code, message: error.kind().to_string(), place })
    }
}

impl From<ShapeError> for HostError {
    fn from(error: ShapeError) -> HostError {
        GraphError::from(error).into()
    }
}

impl From<MicroBatchError> for HostError {
    fn from(error: MicroBatchError) -> HostError {
        match error {
            MicroBatchError::Graph(error) => error.into(),
            other => {
                let (message, place) = (other.to_string(), other.place().map(str::to_owned));
                HostError::Answer(ReturnedError { code: GuestErrorCode::Unsupported, message, place })
            }
        }
    }
}

impl From<CompileError> for HostError {
    fn from(error: CompileError) -> HostError {
        let message = error.to_string();
        let (code, place) = match error {
            CompileError::Interrupted(_) => return DeviceError::Cancelled.into(),
            CompileError::ValueTooLarge { label, .. } => (GuestErrorCode::OutOfMemory, Some(label)),
            CompileError::ProgramTooLarge { .. } => (GuestErrorCode::OutOfMemory, None),
            CompileError::Internal { place, .. } => {
                tracing::error!(error = %message, "a graph could not be compiled");
                (GuestErrorCode::Internal, Some(place))
            }
            _ => (GuestErrorCode::Unsupported, None),
        };
        HostError::Answer(ReturnedError { code, message, place })
    }
}

impl From<DeviceError> for HostError {
    fn from(error: DeviceError) -> HostError {
        HostError::Device(error)
    }
}

impl From<DatasetError> for HostError {
    fn from(error: DatasetError) -> HostError {
        match error {
            DatasetError::NotFound { .. } | DatasetError::Unknown { .. } => {
                HostError::new(GuestErrorCode::NotFound, error.to_string())
            }
            // These errors describe arguments of the plugin.
            DatasetError::Description { reason } => HostError::invalid(reason),
            DatasetError::ColumnSize { .. } | DatasetError::TooLarge { .. } => HostError::invalid(error.to_string()),
            // Other errors contain paths of host files.
            other => {
                tracing::error!(error = %other, "a dataset could not be read");
                HostError::new(GuestErrorCode::Internal, "the dataset could not be read; the host's log says why")
            }
        }
    }
}

impl From<ResourceTableError> for HostError {
    fn from(error: ResourceTableError) -> HostError {
        match error {
            ResourceTableError::Full => HostError::HandlesFull,
            other => HostError::Trap(other.into()),
        }
    }
}

impl From<wasmtime::Error> for HostError {
    fn from(error: wasmtime::Error) -> HostError {
        HostError::Trap(error)
    }
}

/// Returns the error that the plugin gets for a device error.
pub(crate) fn device_error(error: &DeviceError) -> ReturnedError {
    let (code, place) = match error {
        DeviceError::OutOfMemory { .. } => (GuestErrorCode::OutOfMemory, None),
        DeviceError::InsufficientMemory { what, .. } => (GuestErrorCode::OutOfMemory, Some(what.clone())),
        DeviceError::Unsupported { kernel, .. } => (GuestErrorCode::Unsupported, Some(kernel.clone())),
        DeviceError::NotFound { .. } => (GuestErrorCode::NotFound, None),
        DeviceError::Lost { .. } => (GuestErrorCode::DeviceLost, None),
        DeviceError::Mismatch { port, .. } => (GuestErrorCode::InvalidArgument, Some(port.clone())),
        _ => (GuestErrorCode::Internal, None),
    };
    ReturnedError { code, message: error.to_string(), place }
}
