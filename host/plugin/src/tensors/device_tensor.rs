//! Tensors on the device that plugins hold handles of.

use saggar_device::DeviceBuffer;

/// A dense tensor on the device.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct DeviceTensor {
    pub(crate) buffer: DeviceBuffer,
}
