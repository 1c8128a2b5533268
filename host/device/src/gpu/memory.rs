//! A tensor's memory on the device, and the widening of small elements to words.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use saggar_compile::target::{Class, Target};
use saggar_tensor::{DType, Descriptor};

use super::context::Context;
use crate::backend::{Buffer, Storage};
use crate::error::DeviceError;
use crate::half;
use crate::meter::{Charge, Counts, Meter};

/// Copies and bindings are of whole words.
const COPY_BYTES: u64 = wgpu::COPY_BUFFER_ALIGNMENT;

/// A storage buffer, charged to its owner. Dropped, it waits in the context's pool for the next of its size.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<Context>,
    /// Distinct for every buffer of the device that was ever made.
    pub(super) id: u64,
    pub(super) buffer: wgpu::Buffer,
    recycled: bool,
    stale: AtomicBool,
    pub(super) charge: Charge,
}

impl Storage for Memory {}

impl Memory {
    /// The tensor is to be zeros: a recycled buffer is cleared before its first use, unless it is written first.
    pub(super) fn must_clear(&self) {
        self.stale.store(self.recycled, Ordering::Release);
    }

    /// All elements are about to be replaced.
    pub(super) fn written(&self) {
        self.stale.store(false, Ordering::Release);
    }

    /// Encodes the clearing that is due.
    pub(super) fn clear_if_stale(&self, encoder: &mut wgpu::CommandEncoder) {
        if self.stale.swap(false, Ordering::AcqRel) {
            encoder.clear_buffer(&self.buffer, 0, None);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.recycle(self.id, self.buffer.clone());
    }
}

/// Memory for a tensor; `name` is for errors. Its elements are arbitrary.
pub(super) fn tensor(
    context: &Arc<Context>,
    name: &str,
    descriptor: &Descriptor,
    meter: &Meter,
) -> Result<Memory, DeviceError> {
    let target = context.target();
    // Bindings may not be smaller than an element.
    let least = (target.element_bytes(descriptor.dtype) as u64).max(COPY_BYTES);
    allocate(context, name, bytes(&target, descriptor).max(least), meter)
}

/// Bytes of a tensor's elements on the device, whole words.
pub(super) fn bytes(target: &Target, descriptor: &Descriptor) -> u64 {
    target.tensor_bytes(descriptor).next_multiple_of(COPY_BYTES)
}

/// `bytes` of memory, not 0, charged to `meter` first.
pub(super) fn allocate(context: &Arc<Context>, name: &str, bytes: u64, meter: &Meter) -> Result<Memory, DeviceError> {
    context.alive()?;
    let limit = context.allocation_bytes_max();
    if bytes > limit {
        return Err(DeviceError::Unsupported {
            device: context.info.name.clone(),
            kernel: name.to_owned(),
            reason: format!("{bytes} bytes in one buffer, and the adapter's max_buffer_size is {limit}"),
        });
    }
    let charge = context.room.charge(&name, bytes, meter)?;
    match context.buffer(bytes) {
        Ok((id, buffer, recycled)) => {
            meter.add_work(Counts { allocations: u64::from(!recycled), ..Counts::default() });
            Ok(Memory { context: Arc::clone(context), id, buffer, recycled, stale: AtomicBool::new(false), charge })
        }
        Err(error) => {
            // What was refused takes nothing from what is left.
            drop(charge);
            Err(context.refused(&name, bytes, &error))
        }
    }
}

/// The memory behind `buffer`, if it is this device's.
pub(super) fn of<'a>(context: &Arc<Context>, port: &str, buffer: &'a Buffer) -> Result<&'a Memory, DeviceError> {
    let memory = buffer.storage::<Memory>().filter(|memory| Arc::ptr_eq(&memory.context, context));
    memory.ok_or_else(|| DeviceError::Mismatch {
        port: port.to_owned(),
        expected: format!("a tensor of {}", context.info.name),
        actual: "another device's".to_owned(),
    })
}

/// Host elements as the device's words.
pub(super) fn widen<'a>(target: &Target, dtype: DType, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match dtype {
        DType::U8 => Cow::Owned(bytes.iter().flat_map(|&byte| u32::from(byte).to_le_bytes()).collect()),
        DType::I8 => Cow::Owned(bytes.iter().flat_map(|&byte| i32::from(byte as i8).to_le_bytes()).collect()),
        DType::F16 if target.class(dtype) == Class::F16 => {
            let whole = bytes.len().next_multiple_of(COPY_BYTES as usize);
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

/// The device's words as host elements.
pub(super) fn narrow(target: &Target, descriptor: &Descriptor, mut words: Vec<u8>) -> Vec<u8> {
    match descriptor.dtype {
        DType::U8 | DType::I8 => words.chunks_exact(4).map(|word| word[0]).collect(),
        DType::F16 if target.class(DType::F16) == Class::F16 => {
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
