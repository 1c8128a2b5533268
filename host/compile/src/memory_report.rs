//! Memory report: location and lifetime of a program's tensors, and the totals, for display and for memory checks.

use std::collections::HashMap;

use saggar_tensor::{Descriptor, GraphPort};

use crate::program::{Program, ValueLocation};
use crate::target::CompileTarget;

/// A tensor with its memory location.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTensor {
    /// Memory location.
    pub place: ValueLocation,
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// Size in the device's memory in bytes, without padding to the next tensor of its slab.
    pub bytes: u64,
    /// The kernel that writes it; `None` for inputs, variables and constants.
    pub from: Option<usize>,
    /// The last kernel that touches it; `None` if no kernel does.
    pub to: Option<usize>,
}

/// The memory use of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryReport {
    /// Inputs, variables and constants; then the results of kernels, in kernel order.
    pub tensors: Vec<PlannedTensor>,
    /// Total bytes of all slabs: the scratch memory of a dispatch.
    pub arena_bytes: u64,
    /// Peak scratch memory in use, in bytes: the lower bound of any assignment for this kernel order.
    pub peak_bytes: u64,
    /// The first kernel at which the peak is reached.
    pub peak_kernel: Option<usize>,
    /// Bytes of the input tensors of a dispatch.
    pub input_bytes: u64,
    /// Bytes of state that persists between dispatches.
    pub variable_bytes: u64,
    /// Bytes of constants.
    pub constant_bytes: u64,
    /// Bytes of the output tensors of a dispatch.
    pub output_bytes: u64,
}

impl MemoryReport {
    /// Returns the total bytes that a dispatch needs in memory at the same time.
    pub fn total_bytes(&self) -> u64 {
        let parts = [self.arena_bytes, self.input_bytes, self.variable_bytes, self.constant_bytes, self.output_bytes];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Returns the memory report of a program that was compiled for `target`.
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

/// Lists every tensor once, even if kernels use it in several shapes. A slab location has one entry per tensor that
/// occupies it over time.
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

/// Returns the peak bytes in use in slabs, and the kernel at which the peak is reached.
fn peak_slab_bytes(tensors: &[PlannedTensor], kernels: usize) -> (u64, Option<usize>) {
    let mut change = vec![0i128; kernels + 1];
    let mut before: HashMap<ValueLocation, (usize, u64)> = HashMap::new();
    for tensor in tensors {
        if let (ValueLocation::Slab { .. }, Some(from), Some(to)) = (tensor.place, tensor.from, tensor.to) {
            change[from] += i128::from(tensor.bytes);
            change[to + 1] -= i128::from(tensor.bytes);
            // A result that overwrites an operand of the same kernel needs no additional bytes.
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

    /// Compiles two layers of 100 numbers and a sum.
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
        // Tensors that share bytes of a slab never live at the same time, except one that overwrites another in place.
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
