//! What lies where while a program runs, kernel by kernel.

use std::collections::BTreeMap;

use super::{Checked, ensure};
use crate::program::{Body, Layout, Place, Program, Value, ValueId};
use crate::schedule::reads_in_order;
use crate::target::Target;

pub(super) struct SlabCheck<'a> {
    program: &'a Program,
    target: &'a Target,
    /// For each slab, the end of each range that holds a value, by its start.
    slabs: Vec<BTreeMap<usize, usize>>,
    outputs: Vec<bool>,
}

impl<'a> SlabCheck<'a> {
    /// # Errors
    /// What is wrong with a value's place.
    pub(super) fn new(program: &'a Program, target: &'a Target) -> Result<SlabCheck<'a>, &'static str> {
        let outputs = program.outputs.iter().map(|port| port.descriptor.shape.elements() == 0).collect();
        let memory = SlabCheck { program, target, slabs: vec![BTreeMap::new(); program.slabs.len()], outputs };
        program.values.iter().try_for_each(|value| memory.place(value))?;
        let allowed =
            program.slabs.iter().all(|slab| slab.bytes <= target.slab_bytes_max.max(target.binding_bytes_max));
        ensure(allowed, "a slab is no larger than an allocation may be")?;
        Ok(memory)
    }

    fn bytes(&self, value: &Value) -> usize {
        value.descriptor.shape.elements() * self.target.element_bytes(value.descriptor.dtype)
    }

    fn place(&self, value: &Value) -> Checked {
        let ports = |ports: usize, number: u32| ensure((number as usize) < ports, "a place is one of the program's");
        match value.place {
            Place::Input(number) => ports(self.program.inputs.len(), number),
            Place::Variable(number) => ports(self.program.variables.len(), number),
            Place::Constant(number) => ports(self.program.constants.len(), number),
            Place::Output(number) => ports(self.program.outputs.len(), number),
            Place::Slab { slab, offset_bytes } => {
                ports(self.program.slabs.len(), slab)?;
                let slab = &self.program.slabs[slab as usize];
                let bytes = self.bytes(value);
                let end = offset_bytes.saturating_add(bytes);
                let class = self.target.class(value.descriptor.dtype);
                ensure(class == slab.class, "a slab holds one class of elements")?;
                ensure(offset_bytes.is_multiple_of(self.target.alignment_bytes), "a value is aligned")?;
                ensure(end <= slab.bytes, "a value lies inside its slab")?;
                let padded = bytes.next_multiple_of(self.target.alignment_bytes);
                let shown = offset_bytes == 0 || offset_bytes + padded <= self.target.binding_bytes_max;
                ensure(shown, "a value lies inside one binding, or begins its slab")
            }
        }
    }

    /// Checks what the kernel reads, and writes what it writes.
    pub(super) fn run(&mut self, body: &Body) -> Checked {
        let (reads, writes) = (body.reads(), body.writes());
        reads.iter().try_for_each(|&read| self.read(read))?;
        for (at, &written) in writes.iter().enumerate() {
            let apart = writes[at + 1..].iter().all(|&other| !self.overlap(written, other));
            ensure(apart, "results of one kernel lie apart")?;
            let is_safe = |&read: &ValueId| !self.overlap(written, read) || self.is_update(body, written, read);
            ensure(reads.iter().all(is_safe), "a kernel reads nothing that it writes, other than element by element")?;
        }
        writes.into_iter().try_for_each(|written| self.write(written))
    }

    /// # Errors
    /// If an output was not written.
    pub(super) fn finish(&self) -> Checked {
        ensure(self.outputs.iter().all(|&written| written), "every output is written")
    }

    fn value(&self, value: ValueId) -> &'a Value {
        &self.program.values[value.index()]
    }

    fn read(&self, read: ValueId) -> Checked {
        let value = self.value(read);
        match value.place {
            Place::Input(_) | Place::Variable(_) | Place::Constant(_) => Ok(()),
            Place::Output(number) => ensure(self.outputs[number as usize], "an output is written before it is read"),
            Place::Slab { slab, offset_bytes } => {
                let end = self.slabs[slab as usize].get(&offset_bytes);
                let whole = end == Some(&(offset_bytes + self.bytes(value)));
                ensure(whole, "what is read was written, and nothing was written over it")
            }
        }
    }

    fn write(&mut self, written: ValueId) -> Checked {
        let value = self.value(written);
        match value.place {
            Place::Input(_) | Place::Constant(_) => Err("what is given is not written"),
            Place::Variable(number) => {
                let declared = self.program.written_variables.binary_search(&number).is_ok();
                ensure(declared, "variables that are written are declared so")
            }
            Place::Output(number) => {
                self.outputs[number as usize] = true;
                Ok(())
            }
            Place::Slab { slab, offset_bytes } => {
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

    fn overlap(&self, a: ValueId, b: ValueId) -> bool {
        let [a, b] = [a, b].map(|value| self.value(value));
        match (a.place, b.place) {
            (Place::Slab { slab, offset_bytes }, Place::Slab { slab: other, offset_bytes: other_offset }) => {
                slab == other
                    && offset_bytes < other_offset + self.bytes(b)
                    && other_offset < offset_bytes + self.bytes(a)
            }
            (place, other) => place == other,
        }
    }

    /// Whether `written` replaces `read` element by element or tile by tile, where the target allows that.
    fn is_update(&self, body: &Body, written: ValueId, read: ValueId) -> bool {
        let [to, from] = [written, read].map(|value| self.value(value));
        let is_allowed = match to.place {
            Place::Variable(_) => true,
            Place::Slab { .. } => self.target.in_place && self.bytes(to) == self.bytes(from),
            Place::Input(_) | Place::Constant(_) | Place::Output(_) => false,
        };
        let in_tiles = match body {
            Body::MaxPool2dGrad { pool, layout: Layout::ChannelsLast, input, gradient, .. } => {
                let dims = from.descriptor.shape.dims();
                *input == read && *gradient != read && pool.is_tiling([dims[1], dims[2]])
            }
            Body::Map { .. } => reads_in_order(body, |node| node.0 == read.0),
            Body::MaxPool2dGrad { .. }
            | Body::Fold { .. }
            | Body::ArgFold { .. }
            | Body::MatMul { .. }
            | Body::Chain { .. }
            | Body::Conv2d { .. }
            | Body::Conv2dInputGrad { .. }
            | Body::Conv2dFilterGrad { .. }
            | Body::Pool2d { .. }
            | Body::SumPool2dGrad { .. }
            | Body::Gather { .. }
            | Body::Scatter { .. } => false,
        };
        to.place == from.place && is_allowed && in_tiles
    }
}
