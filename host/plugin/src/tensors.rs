//! Tensors as plugins hold them: handles of device memory.

use saggar_device::DeviceBuffer;
use wasmtime::component::Resource;

use crate::bindings::tensors::{Descriptor, Error, Host, HostTensor};
use crate::convert;
use crate::fault::Fault;
use crate::state::State;

/// A dense tensor on the device.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Tensor {
    pub(crate) buffer: DeviceBuffer,
}

impl State {
    /// A device tensor holding `data`, charged to the instance's account.
    pub(crate) fn upload(&self, descriptor: &saggar_tensor::Descriptor, data: &[u8]) -> Result<DeviceBuffer, Fault> {
        if data.len() != descriptor.bytes() {
            return Err(Fault::invalid(format!("{descriptor} takes {} bytes, not {}", descriptor.bytes(), data.len())));
        }
        let buffer = self.backend.allocate(descriptor, &self.meter)?;
        self.backend.write_cancellable(&buffer, data, self.cancel_token())?;
        Ok(buffer)
    }
}

impl Host for State {
    fn convert_error(&mut self, fault: Fault) -> wasmtime::Result<Error> {
        self.answer(fault)
    }
}

impl HostTensor for State {
    fn from_bytes(&mut self, descriptor: Descriptor, data: Vec<u8>) -> Result<Resource<Tensor>, Fault> {
        let descriptor = convert::descriptor(&descriptor)?;
        let buffer = self.upload(&descriptor, &data)?;
        self.push(Tensor { buffer })
    }

    fn descriptor(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Descriptor> {
        Ok(convert::wit_descriptor(self.table.get(&tensor)?.buffer.descriptor()))
    }

    fn read(&mut self, tensor: Resource<Tensor>) -> Result<Vec<u8>, Fault> {
        self.asked();
        let buffer = &self.table.get(&tensor)?.buffer;
        let elements = self.backend.read_cancellable(buffer, self.cancel_token())?;
        self.asked();
        Ok(elements)
    }

    fn drop(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}
