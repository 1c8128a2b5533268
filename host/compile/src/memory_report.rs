//! Where a program's tensors lie and for how long: what the memory plan comes to, for people and for refusals.

use std::collections::HashMap;

use saggar_tensor::{Descriptor, GraphPort};

use crate::program::{Program, ValueLocation};
use crate::target::CompileTarget;

/// A tensor with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTensor {
    /// Where it is.
    pub place: ValueLocation,
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// What it takes in the device's memory, without what fills its slab up to the next one.
    pub bytes: u64,
    /// The kernel that writes it; none for what is given.
    pub from: Option<usize>,
    /// The last kernel that touches it; none where no kernel does.
    pub to: Option<usize>,
}

/// A program's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryReport {
    /// Inputs, variables and constants; then what kernels write, in the order of the kernels.
    pub tensors: Vec<PlannedTensor>,
    /// All slabs together: scratch memory that a dispatch works in.
    pub arena_bytes: u64,
    /// The most scratch memory that is in use at once, which no plan could do without in this order of kernels.
    pub peak_bytes: u64,
    /// The first kernel at which it is.
    pub peak_kernel: Option<usize>,
    /// Tensors that a dispatch is given.
    pub input_bytes: u64,
    /// State that outlives a dispatch.
    pub variable_bytes: u64,
    /// Constants.
    pub constant_bytes: u64,
    /// Tensors that a dispatch returns.
    pub output_bytes: u64,
}

impl MemoryReport {
    /// All of it: what must be there at once for a dispatch.
    pub fn total_bytes(&self) -> u64 {
        let parts = [self.arena_bytes, self.input_bytes, self.variable_bytes, self.constant_bytes, self.output_bytes];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// The memory plan of a program that was compiled for `target`.
pub fn memory_report(program: &Program, target: &CompileTarget) -> MemoryReport {
    let bytes = |descriptor: &Descriptor| {
        (descriptor.shape.elements() as u64).saturating_mul(target.element_bytes(descriptor.dtype) as u64)
    };
    let all = |ports: &[GraphPort]| ports.iter().fold(0, |sum: u64, port| sum.saturating_add(bytes(&port.descriptor)));
    let tensors = planned_tensors(program, &bytes);
    let (peak_bytes, peak_kernel) = peak_slab_bytes(&tensors, program.kernels.len());
    MemoryReport {
        tensors,
        arena_bytes: program.slabs.iter().fold(0, |sum: u64, slab| sum.saturating_add(slab.bytes as u64)),
        peak_bytes,
        peak_kernel,
        input_bytes: all(&program.inputs),
        variable_bytes: all(&program.variables),
        constant_bytes: program.constants.iter().fold(0, |sum: u64, (it, _)| sum.saturating_add(bytes(it))),
        output_bytes: all(&program.outputs),
    }
}

/// Every tensor once, although it may be seen in several shapes; a place in a slab belongs to one after the other.
fn planned_tensors(program: &Program, bytes: &impl Fn(&Descriptor) -> u64) -> Vec<PlannedTensor> {
    let mut tensors = Vec::new();
    let mut at_place: HashMap<ValueLocation, usize> = HashMap::new();
    let mut given = |place: ValueLocation, descriptor: &Descriptor| {
        at_place.insert(place, tensors.len());
        let bytes = bytes(descriptor);
        tensors.push(PlannedTensor { place, descriptor: descriptor.clone(), bytes, from: None, to: None });
    };
    (0..).zip(&program.inputs).for_each(|(at, port)| given(ValueLocation::Input(at), &port.descriptor));
    (0..).zip(&program.variables).for_each(|(at, port)| given(ValueLocation::Variable(at), &port.descriptor));
    (0..).zip(&program.constants).for_each(|(at, (descriptor, _))| given(ValueLocation::Constant(at), descriptor));
    for (kernel, body) in program.kernels.iter().map(|kernel| &kernel.body).enumerate() {
        for value in body.read_values() {
            if let Some(&at) = at_place.get(&program.values[value.index()].place) {
                tensors[at].to = Some(kernel);
            }
        }
        for value in body.written_values() {
            let value = &program.values[value.index()];
            let known = at_place.get(&value.place).copied();
            let makes = match value.place {
                ValueLocation::Slab { .. } | ValueLocation::Output(_) => {
                    known.is_none_or(|at| tensors[at].from != Some(kernel))
                }
                ValueLocation::Input(_) | ValueLocation::Variable(_) | ValueLocation::Constant(_) => known.is_none(),
            };
            let at = if makes { tensors.len() } else { known.unwrap_or_default() };
            if makes {
                let descriptor = value.descriptor.clone();
                tensors.push(PlannedTensor {
                    place: value.place,
                    bytes: bytes(&descriptor),
                    descriptor,
                    from: Some(kernel),
                    to: Some(kernel),
                });
                at_place.insert(value.place, at);
            }
            tensors[at].to = Some(kernel);
        }
    }
    tensors
}

/// The most bytes in slabs at once, and where.
fn peak_slab_bytes(tensors: &[PlannedTensor], kernels: usize) -> (u64, Option<usize>) {
    let mut change = vec![0i128; kernels + 1];
    let mut before: HashMap<ValueLocation, (usize, u64)> = HashMap::new();
    for tensor in tensors {
        if let (ValueLocation::Slab { .. }, Some(from), Some(to)) = (tensor.place, tensor.from, tensor.to) {
            change[from] += i128::from(tensor.bytes);
            change[to + 1] -= i128::from(tensor.bytes);
            // What is written over a tensor that the same kernel reads takes no bytes of its own.
            if let Some((read, bytes)) = before.insert(tensor.place, (to, tensor.bytes))
                && read == from
            {
                change[from] -= i128::from(bytes.min(tensor.bytes));
                change[from + 1] += i128::from(bytes.min(tensor.bytes));
            }
        }
    }
    let mut held = 0;
    let mut peak = (0, None);
    for (kernel, change) in change.into_iter().enumerate() {
        held += change;
        let bytes = u64::try_from(held).unwrap_or(u64::MAX);
        if bytes > peak.0 {
            peak = (bytes, Some(kernel));
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, GraphBuilder, Shape, nn, verify};

    use super::*;

    /// Two layers of 100 numbers and a sum.
    fn program(target: &CompileTarget) -> Program {
        let mut builder = GraphBuilder::new();
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let mut x = builder.input("x", float(&[10, 10])).unwrap();
        for name in ["first", "second"] {
            let weight = builder.variable(name, float(&[10, 10])).unwrap();
            x = nn::linear(&mut builder, x, weight, None).unwrap();
        }
        let sum = nn::softmax(&mut builder, x, 1).unwrap();
        builder.output("y", sum).unwrap();
        crate::compile(&verify(builder.finish()).unwrap(), target).unwrap()
    }

    #[test]
    fn every_tensor_has_a_location_and_a_lifetime() {
        let target = CompileTarget::cpu();
        let program = program(&target);
        let plan = memory_report(&program, &target);
        assert_eq!([plan.input_bytes, plan.variable_bytes, plan.output_bytes], [400, 800, 400]);
        assert!(plan.peak_bytes >= 400 && plan.peak_bytes <= plan.arena_bytes, "{plan:?}");
        assert_eq!(plan.total_bytes(), plan.arena_bytes + 1600 + plan.constant_bytes);
        for tensor in &plan.tensors {
            let used = tensor.to.is_some_and(|to| tensor.from.unwrap_or(0) <= to && to < program.kernels.len());
            assert!(used, "{tensor:?}");
        }
        // Tensors that share bytes of a slab never live at the same time, but for one that is written over another.
        for (at, one) in plan.tensors.iter().enumerate() {
            for other in &plan.tensors[at + 1..] {
                if one.place == other.place {
                    assert!(one.to <= other.from || other.to <= one.from, "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn in_place_results_take_no_bytes_of_their_own() {
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([64, 64]).unwrap())).unwrap();
        let product = builder.matmul(x, x).unwrap();
        let largest = builder.reduce_max(product, &[1], true).unwrap();
        let centred = builder.sub(product, largest).unwrap();
        let result = builder.matmul(centred, x).unwrap();
        builder.output("y", result).unwrap();
        let graph = verify(builder.finish()).unwrap();
        let peak = |target: &CompileTarget| memory_report(&crate::compile(&graph, target).unwrap(), target).peak_bytes;
        let (matrix, column) = (64 * 64 * 4, 64 * 4);
        assert_eq!(peak(&CompileTarget::cpu()), matrix + column);
        assert_eq!(peak(&CompileTarget { in_place: false, ..CompileTarget::cpu() }), 2 * matrix + column);
    }
}
