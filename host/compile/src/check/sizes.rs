//! Checks that a kernel's operands and results have as many elements as its sizes require.

use super::{CheckResult, ensure};
use crate::program::{FusedConsumer, KernelBody, ProductOperand, Program, ResultStore, ValueId};

pub(super) fn check_sizes(program: &Program, body: &KernelBody) -> CheckResult {
    let of = SizeCheck(program);
    match body {
        KernelBody::Map { dims, expr, stores } => of.check_stores(stores, dims, expr.instructions.len()),
        KernelBody::Fold { outer, prologue, epilogue, .. } => {
            ensure(!prologue.instructions.is_empty(), "a reduction's prologue has an instruction")?;
            of.check_stores(&epilogue.stores, outer, epilogue.expr.instructions.len())
        }
        KernelBody::MatMul { sizes, a, b, batch_stride_a, batch_stride_b, epilogue, .. } => {
            let [batch, m, n, k] = *sizes;
            of.check_operand(
                &ProductOperand { value: *a, transposed: false, batch_stride: *batch_stride_a },
                batch,
                m * k,
            )?;
            of.check_operand(
                &ProductOperand { value: *b, transposed: false, batch_stride: *batch_stride_b },
                batch,
                k * n,
            )?;
            of.check_stores(&epilogue.stores, &[batch, m, n], epilogue.expr.instructions.len())
        }
        KernelBody::Chain { .. } => of.check_fused_matmul(body),
        KernelBody::Conv2d { input, filter, result, epilogue, .. } => {
            of.check_windowed_ranks(&[input, filter])?;
            of.check_stores(&epilogue.stores, result, epilogue.expr.instructions.len())
        }
        KernelBody::Conv2dInputGrad { gradient: a, filter: b, output, .. }
        | KernelBody::Conv2dFilterGrad { input: a, gradient: b, output, .. }
        | KernelBody::MaxPool2dGrad { input: a, gradient: b, output, .. } => of.check_windowed_ranks(&[a, b, output]),
        KernelBody::Pool2d { input, output, .. } | KernelBody::SumPool2dGrad { gradient: input, output, .. } => {
            of.check_windowed_ranks(&[input, output])
        }
        KernelBody::ArgFold { dims, input, output, .. } => {
            of.check_elements(input, dims.iter().product())?;
            of.check_elements(output, dims[0] * dims[2])
        }
        KernelBody::Gather { dims, input, indices, output } => {
            of.check_elements(input, dims.iter().product())?;
            of.check_elements(output, dims[0] * of.elements(indices) * dims[2])
        }
        KernelBody::Scatter { dims, base, indices, updates, output, .. } => {
            base.iter().try_for_each(|base| of.check_elements(base, dims.iter().product()))?;
            of.check_elements(updates, dims[0] * of.elements(indices) * dims[2])?;
            of.check_elements(output, dims.iter().product())
        }
    }
}

/// The sizes of a program's values.
struct SizeCheck<'p>(&'p Program);

impl SizeCheck<'_> {
    fn elements(&self, value: &ValueId) -> usize {
        self.0.values[value.index()].descriptor.shape.elements()
    }

    fn check_elements(&self, value: &ValueId, count: usize) -> CheckResult {
        ensure(self.elements(value) == count, "a value has as many elements as its kernel says")
    }

    fn check_stores(&self, stores: &[ResultStore], dims: &[usize], instructions: usize) -> CheckResult {
        ensure(!stores.is_empty(), "a kernel stores something")?;
        for store in stores {
            self.check_elements(&store.value, dims.iter().product())?;
            ensure((store.register.0 as usize) < instructions, "a stored register is an instruction's result")?;
        }
        Ok(())
    }

    fn check_operand(&self, factor: &ProductOperand, batch: usize, size: usize) -> CheckResult {
        let last = batch.saturating_sub(1).saturating_mul(factor.batch_stride).saturating_add(size);
        ensure(last <= self.elements(&factor.value), "a product reads within its factors")
    }

    fn check_windowed_ranks(&self, values: &[&ValueId]) -> CheckResult {
        let are = values.iter().all(|value| self.0.values[value.index()].descriptor.shape.rank() == 4);
        ensure(are, "windows have four dimensions")
    }

    /// Checks a `KernelBody::Chain`; accepts all other bodies.
    fn check_fused_matmul(&self, body: &KernelBody) -> CheckResult {
        let KernelBody::Chain { dims, products, link, softmax, end, results, epilogue } = body else { return Ok(()) };
        let [batches @ .., rows, columns] = &dims[..] else { return Err("a fused matrix has rows and columns") };
        let batch: usize = batches.iter().product();
        ensure(
            !link.instructions.is_empty() && !products.is_empty(),
            "a fused matmul has a score expression and a product",
        )?;
        for product in products {
            self.check_operand(&product.a, batch, rows * product.depth)?;
            self.check_operand(&product.b, batch, columns * product.depth)?;
        }
        let rows_of =
            |value: &Option<ValueId>| value.as_ref().map_or(Ok(()), |value| self.check_elements(value, batch * rows));
        softmax.iter().try_for_each(|softmax| rows_of(&softmax.largest).and(rows_of(&softmax.sum)))?;
        let size = match end {
            FusedConsumer::Fold(_) => batch * rows,
            FusedConsumer::Product { factor: read, columns: n, .. } => {
                self.check_operand(read, batch, columns * n)?;
                batch * rows * n
            }
        };
        ensure(results.iter().product::<usize>() == size, "a fused matmul has the results of its consumer")?;
        self.check_stores(&epilogue.stores, results, epilogue.expr.instructions.len())
    }
}
