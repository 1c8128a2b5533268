//! Gather and scatter kernels. Scatter is also the adjoint of gather.

use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op::{ReduceKind, ScatterCombine};

use crate::element::{Element, with_element};
use crate::elementwise_loops::{accumulate, elements, elements_mut};
use crate::f32_access::{as_f32, write_as_f32};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::threads::CpuThreads;

/// Approximate number of elements that one task writes.
const TASK_ELEMENTS: usize = 1 << 14;
/// Maximum number of ranges of a scattered axis, one per task. Each task reads all indices.
const RANGES_MAX: usize = 8;

/// Returns indices as positions below `size`. Negative indices count from the end. Indices that are still outside are
/// clamped.
fn clamped_positions(dtype: DType, bytes: &[u8], size: usize) -> Vec<usize> {
    fn clamp<T: Copy + Into<i128>>(bytes: &[T], size: i128) -> Vec<usize> {
        let position = |&index: &T| {
            let index: i128 = index.into();
            let index = if index < 0 { index + size } else { index };
            index.clamp(0, (size - 1).max(0)) as usize
        };
        bytes.iter().map(position).collect()
    }
    let size = size as i128;
    match dtype {
        DType::I64 => clamp(elements::<i64>(bytes), size),
        DType::U64 => clamp(elements::<u64>(bytes), size),
        DType::I32 => clamp(elements::<i32>(bytes), size),
        DType::U32 => clamp(elements::<u32>(bytes), size),
        DType::I8 => clamp(elements::<i8>(bytes), size),
        DType::U8 => clamp(bytes, size),
        DType::F32 | DType::F16 => unreachable!("`integer_index_type` refuses other indices"),
    }
}

fn integer_index_type(context: &KernelContext<'_>, indices: ValueId) -> Result<DType, KernelRefusal> {
    let dtype = context.dtype(indices);
    if dtype.is_float() { Err(KernelRefusal::Type(dtype)) } else { Ok(dtype) }
}

/// A gather: rows selected by index.
#[derive(Debug)]
pub(crate) struct CpuGather {
    dims: [usize; 3],
    index_type: DType,
    element_bytes: usize,
    input: usize,
    indices: usize,
    output: usize,
}

impl CpuGather {
    /// Prepares a `KernelBody::Gather` of `[input, indices, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        dims: [usize; 3],
        [input, indices, output]: [ValueId; 3],
    ) -> Result<CpuGather, KernelRefusal> {
        Ok(CpuGather {
            dims,
            index_type: integer_index_type(context, indices)?,
            element_bytes: context.dtype(input).bytes(),
            input: context.operand(input)?,
            indices: context.operand(indices)?,
            output: context.region(output),
        })
    }
}

impl PreparedKernel for CpuGather {
    fn routine(&self) -> &'static str {
        "gather: rows copied by index"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let [_, size, after] = self.dims;
        let output = slices[self.output].take();
        let x = slices[self.input].read();
        let positions = clamped_positions(self.index_type, slices[self.indices].read(), size);
        let row = after * self.element_bytes;
        if row == 0 || positions.is_empty() {
            return;
        }
        let together = (TASK_ELEMENTS / after).max(1);
        let operations = output.len() / self.element_bytes;
        let tasks: Vec<_> = output.chunks_mut(together * row).enumerate().collect();
        threads.for_each(operations, tasks, |(task, out)| {
            for (index, out) in out.chunks_mut(row).enumerate() {
                let index = task * together + index;
                let (before, chosen) = (index / positions.len(), positions[index % positions.len()]);
                out.copy_from_slice(&x[(before * size + chosen) * row..][..row]);
            }
        });
    }
}

/// A scatter: updates combined into the elements at their indices, in index order.
#[derive(Debug)]
pub(crate) struct CpuScatter {
    dims: [usize; 3],
    combine: ScatterCombine,
    base: Option<usize>,
    index_type: DType,
    dtype: DType,
    indices: usize,
    updates: usize,
    output: usize,
}

impl CpuScatter {
    /// Prepares a `KernelBody::Scatter` of `[indices, updates, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        dims: [usize; 3],
        (combine, base): (ScatterCombine, Option<ValueId>),
        [indices, updates, output]: [ValueId; 3],
    ) -> Result<CpuScatter, KernelRefusal> {
        Ok(CpuScatter {
            dims,
            combine,
            base: base.map(|base| context.operand(base)).transpose()?,
            index_type: integer_index_type(context, indices)?,
            dtype: context.dtype(updates),
            indices: context.operand(indices)?,
            updates: context.operand(updates)?,
            output: context.region(output),
        })
    }

    fn scatter<T: Element>(
        &self,
        threads: &CpuThreads,
        positions: &[usize],
        base: Option<&[T]>,
        updates: &[T],
        out: &mut [T],
    ) {
        let [before, size, after] = self.dims;
        if out.is_empty() {
            return;
        }
        let ranges = RANGES_MAX.div_ceil(before).min(size);
        let range = size.div_ceil(ranges);
        let mut tasks = Vec::new();
        for (block, out) in out.chunks_mut(size * after).enumerate() {
            tasks.extend(out.chunks_mut(range * after).enumerate().map(|(part, out)| (block, part * range, out)));
        }
        threads.for_each(updates.len() + before * size * after, tasks, |(block, low, out)| {
            match base {
                Some(base) => out.copy_from_slice(&base[(block * size + low) * after..][..out.len()]),
                None => out.fill(T::from_index(0)),
            }
            let high = low + out.len() / after;
            for (index, &position) in positions.iter().enumerate() {
                if (low..high).contains(&position) {
                    let update = &updates[(block * positions.len() + index) * after..][..after];
                    let place = &mut out[(position - low) * after..][..after];
                    match self.combine {
                        ScatterCombine::Replace => place.copy_from_slice(update),
                        ScatterCombine::Add => accumulate(ReduceKind::Sum, place, update),
                        ScatterCombine::Mul => accumulate(ReduceKind::Product, place, update),
                        ScatterCombine::Min => accumulate(ReduceKind::Min, place, update),
                        ScatterCombine::Max => accumulate(ReduceKind::Max, place, update),
                    }
                }
            }
        });
    }
}

impl PreparedKernel for CpuScatter {
    fn routine(&self) -> &'static str {
        "scatter: rows written by index, in order"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let output = slices[self.output].take();
        let updates = slices[self.updates].read();
        let base = self.base.map(|base| slices[base].read());
        let positions = clamped_positions(self.index_type, slices[self.indices].read(), self.dims[1]);
        if self.dtype.is_float() {
            let updates = as_f32(self.dtype, updates);
            let base = base.map(|base| as_f32(self.dtype, base));
            write_as_f32(self.dtype, output, |out| self.scatter(threads, &positions, base.as_deref(), &updates, out));
        } else {
            with_element!(self.dtype, T => {
                let base = base.map(elements::<T>);
                self.scatter::<T>(threads, &positions, base, elements(updates), elements_mut(output));
            });
        }
    }
}
