//! Storage buffers that hold tensors on the device, and the widening of narrow elements to 32-bit words.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use saggar_compile::target::{CompileTarget, StorageClass};
use saggar_tensor::{DType, Descriptor};

use super::context::GpuContext;
use saggar_device::backend::{BufferStorage, DeviceBuffer};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::half;
use saggar_device::memory_budget::DeviceMemoryCharge;
use saggar_device::meter::{DeviceCounters, Meter};

/// Copies and bindings consist of whole words; in bytes.
const COPY_ALIGNMENT_BYTES: u64 = wgpu::COPY_BUFFER_ALIGNMENT;

/// A storage buffer, charged to its owner. When it is dropped, its memory returns to the context's pool.
#[derive(Debug)]
pub(super) struct StorageBuffer {
    context: Arc<GpuContext>,
    /// Unique among all buffers created on the device.
    pub(super) id: u64,
    pub(super) buffer: wgpu::Buffer,
    is_recycled: bool,
    is_stale: AtomicBool,
    pub(super) charge: DeviceMemoryCharge,
}

impl BufferStorage for StorageBuffer {}

impl StorageBuffer {
    /// Makes the tensor zero: a recycled buffer is cleared before its first use, unless it is overwritten first.
    pub(super) fn mark_stale_if_recycled(&self) {
        self.is_stale.store(self.is_recycled, Ordering::Release);
    }

    /// Cancels the clearing, because all elements are about to be replaced.
    fn mark_overwritten(&self) {
        self.is_stale.store(false, Ordering::Release);
    }

    /// Encodes the clearing if it is due.
    pub(super) fn clear_if_stale(&self, encoder: &mut wgpu::CommandEncoder) {
        if self.is_stale.swap(false, Ordering::AcqRel) {
            encoder.clear_buffer(&self.buffer, 0, None);
        }
    }

    /// Replaces the words of the tensor.
    pub(super) fn write(&self, words: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        let GpuContext { device, queue, .. } = &*self.context;
        device.ensure_alive()?;
        queue.wait_for_capacity(cancel)?;
        let mut line = queue.lock_commands();
        queue.upload(&mut line, &self.buffer, words, cancel)?;
        self.mark_overwritten();
        queue.finish_write(&mut line, words.len())
    }

    /// Returns the first `bytes` of the tensor, a whole number of words, after the work that writes them is done.
    pub(super) fn read(&self, bytes: u64, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        let GpuContext { device, queue, .. } = &*self.context;
        device.ensure_alive()?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        queue.wait_for_capacity(cancel)?;
        let pooled = queue.buffer_pool.lock().take_staging_buffer(bytes);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let make = || device.create_internal_buffer(&"the staging buffer of a read", bytes, usage, false);
        let staging = pooled.map_or_else(make, Ok)?;
        let mut line = queue.lock_commands();
        let encoder = queue.open_encoder(&mut line);
        self.clear_if_stale(encoder);
        encoder.copy_buffer_to_buffer(&self.buffer, 0, &staging, 0, bytes);
        queue.encode_timestamp_readback(&mut line);
        let number = queue.flush(&mut line)?;
        drop(line);
        queue.wait_for_mapping(&staging, number, cancel)?;
        let range = staging.slice(..).get_mapped_range().map_err(|error| device.lost_error(error.to_string()))?;
        let words = range.to_vec();
        drop(range);
        staging.unmap();
        queue.buffer_pool.lock().put_staging_buffer(staging);
        Ok(words)
    }
}

impl Drop for StorageBuffer {
    fn drop(&mut self) {
        self.context.recycle(self.id, self.buffer.clone());
    }
}

/// Allocates memory for a tensor; `name` is for errors. Its elements are arbitrary.
pub(super) fn allocate_tensor(
    context: &Arc<GpuContext>,
    name: &str,
    descriptor: &Descriptor,
    meter: &Meter,
) -> Result<StorageBuffer, DeviceError> {
    let target = context.target();
    // A binding must hold at least one element.
    let least = (target.element_bytes(descriptor.dtype) as u64).max(COPY_ALIGNMENT_BYTES);
    allocate(context, name, tensor_bytes(&target, descriptor).max(least), meter)
}

/// Returns the bytes of a tensor's elements on the device, rounded up to whole words.
pub(super) fn tensor_bytes(target: &CompileTarget, descriptor: &Descriptor) -> u64 {
    target.tensor_bytes(descriptor).next_multiple_of(COPY_ALIGNMENT_BYTES)
}

/// Allocates `bytes` of memory, not 0, and charges them to `meter` first.
pub(super) fn allocate(
    context: &Arc<GpuContext>,
    name: &str,
    bytes: u64,
    meter: &Meter,
) -> Result<StorageBuffer, DeviceError> {
    let device = &context.device;
    device.ensure_alive()?;
    let limit = device.allocation_bytes_max();
    if bytes > limit {
        return Err(DeviceError::Unsupported {
            device: device.info.name.clone(),
            kernel: name.to_owned(),
            reason: format!("{bytes} bytes in one buffer, and the adapter's max_buffer_size is {limit}"),
        });
    }
    let charge = device.room.charge(&name, bytes, meter)?;
    match context.acquire_buffer(bytes) {
        Ok((id, buffer, recycled)) => {
            meter.add_counters(DeviceCounters { allocations: u64::from(!recycled), ..DeviceCounters::default() });
            Ok(StorageBuffer {
                context: Arc::clone(context),
                id,
                buffer,
                is_recycled: recycled,
                is_stale: AtomicBool::new(false),
                charge,
            })
        }
        Err(error) => {
            // Release the refused bytes before the error reports how many are left.
            drop(charge);
            Err(device.allocation_error(&name, bytes, &error))
        }
    }
}

/// Returns the storage of `buffer`, or `Mismatch` if it belongs to another device.
pub(super) fn downcast_buffer<'a>(
    context: &Arc<GpuContext>,
    port: &str,
    buffer: &'a DeviceBuffer,
) -> Result<&'a StorageBuffer, DeviceError> {
    let memory = buffer.storage::<StorageBuffer>().filter(|memory| Arc::ptr_eq(&memory.context, context));
    memory.ok_or_else(|| DeviceError::Mismatch {
        port: port.to_owned(),
        expected: format!("a tensor of {}", context.device.info.name),
        actual: "a tensor of another device".to_owned(),
    })
}

/// Widens host elements to the device's words.
pub(super) fn widen_to_words<'a>(target: &CompileTarget, dtype: DType, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match dtype {
        DType::U8 => Cow::Owned(bytes.iter().flat_map(|&byte| u32::from(byte).to_le_bytes()).collect()),
        DType::I8 => Cow::Owned(bytes.iter().flat_map(|&byte| i32::from(byte as i8).to_le_bytes()).collect()),
        DType::F16 if target.class(dtype) == StorageClass::F16 => {
            let whole = bytes.len().next_multiple_of(COPY_ALIGNMENT_BYTES as usize);
            if whole == bytes.len() {
                return Cow::Borrowed(bytes);
            }
            let mut words = bytes.to_vec();
            words.resize(whole, 0);
            Cow::Owned(words)
        }
        DType::F16 => {
            let (halves, _) = bytes.as_chunks();
            Cow::Owned(halves.iter().flat_map(|&bits| half::to_f32(u16::from_le_bytes(bits)).to_le_bytes()).collect())
        }
        DType::F32 | DType::I64 | DType::U64 | DType::I32 | DType::U32 => Cow::Borrowed(bytes),
    }
}

/// Narrows the device's words to host elements.
pub(super) fn narrow_from_words(target: &CompileTarget, descriptor: &Descriptor, mut words: Vec<u8>) -> Vec<u8> {
    match descriptor.dtype {
        DType::U8 | DType::I8 => words.chunks_exact(4).map(|word| word[0]).collect(),
        DType::F16 if target.class(DType::F16) == StorageClass::F16 => {
            words.truncate(descriptor.bytes());
            words
        }
        DType::F16 => {
            let (words, _) = words.as_chunks();
            words.iter().flat_map(|&word| half::from_f32(f32::from_le_bytes(word)).to_le_bytes()).collect()
        }
        DType::F32 | DType::I64 | DType::U64 | DType::I32 | DType::U32 => words,
    }
}
