//! Arg-max and arg-min: the index of the largest or smallest element along one axis.

use saggar_compile::program::ValueId;
use saggar_tensor::DType;

use crate::element::{Element, with_element};
use crate::elementwise_loops::{elements, elements_mut};
use crate::f32_access::as_f32;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::threads::CpuThreads;

/// Approximate number of elements that one task reads.
const TASK_ELEMENTS: usize = 1 << 14;

/// Arg-max or arg-min: the index of the first largest or smallest element along the middle of three dimensions.
#[derive(Debug)]
pub(crate) struct CpuArgFold {
    largest: bool,
    dims: [usize; 3],
    dtype: DType,
    input: usize,
    output: usize,
}

impl CpuArgFold {
    /// Prepares a `KernelBody::ArgFold`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        largest: bool,
        dims: [usize; 3],
        input: ValueId,
        output: ValueId,
    ) -> Result<CpuArgFold, KernelRefusal> {
        Ok(CpuArgFold {
            largest,
            dims,
            dtype: context.dtype(input),
            input: context.operand(input)?,
            output: context.region(output),
        })
    }

    fn search<T: Element>(&self, threads: &CpuThreads, values: &[T], output: &mut [i32]) {
        let [_, length, after] = self.dims;
        let together = (TASK_ELEMENTS / (length * after)).max(1) * after;
        let tasks: Vec<_> = output.chunks_mut(together).enumerate().collect();
        threads.for_each(values.len(), tasks, |(task, out)| {
            for (offset, out) in out.iter_mut().enumerate() {
                let index = task * together + offset;
                let start = index / after * length * after + index % after;
                let (mut best, mut place) = (values[start], 0);
                for (at, &value) in values[start..].iter().step_by(after).take(length).enumerate() {
                    let beats = if self.largest { value > best } else { value < best };
                    if beats {
                        (best, place) = (value, at);
                    }
                }
                *out = place as i32;
            }
        });
    }
}

impl PreparedKernel for CpuArgFold {
    fn routine(&self) -> &'static str {
        "arg-max or arg-min along one axis"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let output = elements_mut::<i32>(slices[self.output].take());
        let bytes = slices[self.input].read();
        if output.is_empty() {
            return;
        }
        if self.dtype.is_float() {
            self.search(threads, &as_f32(self.dtype, bytes), output);
        } else {
            with_element!(self.dtype, T => self.search::<T>(threads, elements(bytes), output));
        }
    }
}
