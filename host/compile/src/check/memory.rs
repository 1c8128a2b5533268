//! Checks memory contents kernel by kernel: which value occupies which range.

use std::collections::BTreeMap;

use super::{CheckResult, ensure};
use crate::program::{ChannelLayout, KernelBody, Program, ProgramValue, ValueId, ValueLocation};
use crate::schedule::reads_in_order;
use crate::target::CompileTarget;

pub(super) struct SlabCheck<'a> {
    program: &'a Program,
    target: &'a CompileTarget,
    /// For each slab, the end of each occupied range, by its start.
    slabs: Vec<BTreeMap<usize, usize>>,
    outputs: Vec<bool>,
}

impl<'a> SlabCheck<'a> {
    /// # Errors
    /// Returns a description of the first value with an invalid location.
    pub(super) fn new(program: &'a Program, target: &'a CompileTarget) -> Result<SlabCheck<'a>, &'static str> {
        let outputs = program.outputs.iter().map(|port| port.descriptor.shape.elements() == 0).collect();
        let memory = SlabCheck { program, target, slabs: vec![BTreeMap::new(); program.slabs.len()], outputs };
        program.values.iter().try_for_each(|value| memory.check_place(value))?;
        let allowed =
            program.slabs.iter().all(|slab| slab.bytes <= target.slab_bytes_max.max(target.binding_bytes_max));
        ensure(allowed, "a slab is within the target's size limit")?;
        Ok(memory)
    }

    fn bytes(&self, value: &ProgramValue) -> usize {
        value.descriptor.shape.elements() * self.target.element_bytes(value.descriptor.dtype)
    }

    fn check_place(&self, value: &ProgramValue) -> CheckResult {
        let ports = |ports: usize, number: u32| ensure((number as usize) < ports, "a location is one of the program's");
        match value.place {
            ValueLocation::Input(number) => ports(self.program.inputs.len(), number),
            ValueLocation::Variable(number) => ports(self.program.variables.len(), number),
            ValueLocation::Constant(number) => ports(self.program.constants.len(), number),
            ValueLocation::Output(number) => ports(self.program.outputs.len(), number),
            ValueLocation::Slab { slab, offset_bytes } => {
                ports(self.program.slabs.len(), slab)?;
                let slab = &self.program.slabs[slab as usize];
                let bytes = self.bytes(value);
                let end = offset_bytes.saturating_add(bytes);
                let class = self.target.class(value.descriptor.dtype);
                ensure(class == slab.class, "a slab holds one class of elements")?;
                ensure(offset_bytes.is_multiple_of(self.target.alignment_bytes), "a value is aligned")?;
                ensure(end <= slab.bytes, "a value is inside its slab")?;
                let padded = bytes.next_multiple_of(self.target.alignment_bytes);
                let fits_binding = offset_bytes == 0 || offset_bytes + padded <= self.target.binding_bytes_max;
                ensure(fits_binding, "a value is inside one binding, or at the start of its slab")
            }
        }
    }

    /// Checks the kernel's reads, then applies its writes.
    pub(super) fn check_kernel(&mut self, body: &KernelBody) -> CheckResult {
        let (reads, writes) = (body.read_values(), body.written_values());
        reads.iter().try_for_each(|&read| self.check_read(read))?;
        for (at, &written) in writes.iter().enumerate() {
            let apart = writes[at + 1..].iter().all(|&other| !self.overlaps(written, other));
            ensure(apart, "results of one kernel do not overlap")?;
            let is_safe =
                |&read: &ValueId| !self.overlaps(written, read) || self.is_in_place_update(body, written, read);
            ensure(reads.iter().all(is_safe), "a kernel reads no memory that it writes, except element by element")?;
        }
        writes.into_iter().try_for_each(|written| self.record_write(written))
    }

    /// # Errors
    /// Returns an error if an output was not written.
    pub(super) fn check_outputs_written(&self) -> CheckResult {
        ensure(self.outputs.iter().all(|&written| written), "every output is written")
    }

    fn value(&self, value: ValueId) -> &'a ProgramValue {
        &self.program.values[value.index()]
    }

    fn check_read(&self, read: ValueId) -> CheckResult {
        let value = self.value(read);
        match value.place {
            ValueLocation::Input(_) | ValueLocation::Variable(_) | ValueLocation::Constant(_) => Ok(()),
            ValueLocation::Output(number) => {
                ensure(self.outputs[number as usize], "an output is written before it is read")
            }
            ValueLocation::Slab { slab, offset_bytes } => {
                let end = self.slabs[slab as usize].get(&offset_bytes);
                let whole = end == Some(&(offset_bytes + self.bytes(value)));
                ensure(whole, "a value is written before it is read, and not overwritten in between")
            }
        }
    }

    fn record_write(&mut self, written: ValueId) -> CheckResult {
        let value = self.value(written);
        match value.place {
            ValueLocation::Input(_) | ValueLocation::Constant(_) => Err("inputs and constants are not written"),
            ValueLocation::Variable(number) => {
                let declared = self.program.written_variables.binary_search(&number).is_ok();
                ensure(declared, "written variables are declared as written")
            }
            ValueLocation::Output(number) => {
                self.outputs[number as usize] = true;
                Ok(())
            }
            ValueLocation::Slab { slab, offset_bytes } => {
                let end = offset_bytes + self.bytes(value);
                let ranges = &mut self.slabs[slab as usize];
                while let Some((&other, &other_end)) = ranges.range(..end).next_back()
                    && other_end > offset_bytes
                {
                    ranges.remove(&other);
                }
                ranges.insert(offset_bytes, end);
                Ok(())
            }
        }
    }

    fn overlaps(&self, a: ValueId, b: ValueId) -> bool {
        let [a, b] = [a, b].map(|value| self.value(value));
        match (a.place, b.place) {
            (
                ValueLocation::Slab { slab, offset_bytes },
                ValueLocation::Slab { slab: other, offset_bytes: other_offset },
            ) => {
                slab == other
                    && offset_bytes < other_offset + self.bytes(b)
                    && other_offset < offset_bytes + self.bytes(a)
            }
            (place, other) => place == other,
        }
    }

    /// Returns whether `written` replaces `read` element by element or tile by tile, if the target allows that.
    fn is_in_place_update(&self, body: &KernelBody, written: ValueId, read: ValueId) -> bool {
        let [to, from] = [written, read].map(|value| self.value(value));
        let is_allowed = match to.place {
            ValueLocation::Variable(_) => true,
            ValueLocation::Slab { .. } => self.target.in_place && self.bytes(to) == self.bytes(from),
            ValueLocation::Input(_) | ValueLocation::Constant(_) | ValueLocation::Output(_) => false,
        };
        let in_tiles = match body {
            KernelBody::MaxPool2dGrad { pool, layout: ChannelLayout::ChannelsLast, input, gradient, .. } => {
                let dims = from.descriptor.shape.dims();
                *input == read && *gradient != read && pool.is_tiling([dims[1], dims[2]])
            }
            KernelBody::Map { .. } => reads_in_order(body, |node| node.0 == read.0),
            KernelBody::MaxPool2dGrad { .. }
            | KernelBody::Fold { .. }
            | KernelBody::ArgFold { .. }
            | KernelBody::MatMul { .. }
            | KernelBody::Chain { .. }
            | KernelBody::Conv2d { .. }
            | KernelBody::Conv2dInputGrad { .. }
            | KernelBody::Conv2dFilterGrad { .. }
            | KernelBody::Pool2d { .. }
            | KernelBody::SumPool2dGrad { .. }
            | KernelBody::Gather { .. }
            | KernelBody::Scatter { .. } => false,
        };
        to.place == from.place && is_allowed && in_tiles
    }
}
