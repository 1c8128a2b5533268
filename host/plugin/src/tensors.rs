//! Handles of device tensors for plugins.

pub(crate) mod device_tensor;

use saggar_device::DeviceBuffer;
use wasmtime::component::Resource;

use crate::bindings::tensors::{Descriptor, Error, Host, HostTensor};
use crate::convert;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use device_tensor::DeviceTensor;

impl InstanceState {
    /// Uploads `data` to a new device tensor, charged to the instance's meter.
    pub(crate) fn upload(
        &self,
        descriptor: &saggar_tensor::Descriptor,
        data: &[u8],
    ) -> Result<DeviceBuffer, HostError> {
        if data.len() != descriptor.bytes() {
            return Err(HostError::invalid(format!(
                "{descriptor} takes {} bytes, not {}",
                descriptor.bytes(),
                data.len()
            )));
        }
        let buffer = self.backend.allocate(descriptor, &self.meter)?;
        self.backend.write_cancellable(&buffer, data, self.cancel_token())?;
        Ok(buffer)
    }
}

impl Host for InstanceState {
    fn convert_error(&mut self, fault: HostError) -> wasmtime::Result<Error> {
        self.wit_error(fault)
    }
}

impl HostTensor for InstanceState {
    fn from_bytes(&mut self, descriptor: Descriptor, data: Vec<u8>) -> Result<Resource<DeviceTensor>, HostError> {
        let descriptor = convert::descriptor(&descriptor)?;
        let buffer = self.upload(&descriptor, &data)?;
        self.push(DeviceTensor { buffer })
    }

    fn descriptor(&mut self, tensor: Resource<DeviceTensor>) -> wasmtime::Result<Descriptor> {
        Ok(convert::wit_descriptor(self.table.get(&tensor)?.buffer.descriptor()))
    }

    fn read(&mut self, tensor: Resource<DeviceTensor>) -> Result<Vec<u8>, HostError> {
        self.record_host_call();
        let buffer = &self.table.get(&tensor)?.buffer;
        let elements = self.backend.read_cancellable(buffer, self.cancel_token())?;
        self.record_host_call();
        Ok(elements)
    }

    fn drop(&mut self, tensor: Resource<DeviceTensor>) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}
