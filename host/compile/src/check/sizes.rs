//! Whether what a kernel reads and writes has as many elements as its sizes say.

use super::{Checked, ensure};
use crate::program::{Body, End, Factor, Program, Store, ValueId};

pub(super) fn check(program: &Program, body: &Body) -> Checked {
    let of = Sizes(program);
    match body {
        Body::Map { dims, expr, stores } => of.stored(stores, dims, expr.instructions.len()),
        Body::Fold { outer, prologue, epilogue, .. } => {
            ensure(!prologue.instructions.is_empty(), "a fold has something to fold")?;
            of.stored(&epilogue.stores, outer, epilogue.expr.instructions.len())
        }
        Body::MatMul { sizes, a, b, batch_stride_a, batch_stride_b, epilogue, .. } => {
            let [batch, m, n, k] = *sizes;
            of.factor(&Factor { value: *a, transposed: false, batch_stride: *batch_stride_a }, batch, m * k)?;
            of.factor(&Factor { value: *b, transposed: false, batch_stride: *batch_stride_b }, batch, k * n)?;
            of.stored(&epilogue.stores, &[batch, m, n], epilogue.expr.instructions.len())
        }
        Body::Chain { .. } => of.chain(body),
        Body::Conv2d { input, filter, result, epilogue, .. } => {
            of.windows(&[input, filter])?;
            of.stored(&epilogue.stores, result, epilogue.expr.instructions.len())
        }
        Body::Conv2dInputGrad { gradient: a, filter: b, output, .. }
        | Body::Conv2dFilterGrad { input: a, gradient: b, output, .. }
        | Body::MaxPool2dGrad { input: a, gradient: b, output, .. } => of.windows(&[a, b, output]),
        Body::Pool2d { input, output, .. } | Body::SumPool2dGrad { gradient: input, output, .. } => {
            of.windows(&[input, output])
        }
        Body::ArgFold { dims, input, output, .. } => {
            of.has(input, dims.iter().product())?;
            of.has(output, dims[0] * dims[2])
        }
        Body::Gather { dims, input, indices, output } => {
            of.has(input, dims.iter().product())?;
            of.has(output, dims[0] * of.elements(indices) * dims[2])
        }
        Body::Scatter { dims, base, indices, updates, output, .. } => {
            base.iter().try_for_each(|base| of.has(base, dims.iter().product()))?;
            of.has(updates, dims[0] * of.elements(indices) * dims[2])?;
            of.has(output, dims.iter().product())
        }
    }
}

/// The sizes of a program's values.
struct Sizes<'p>(&'p Program);

impl Sizes<'_> {
    fn elements(&self, value: &ValueId) -> usize {
        self.0.values[value.index()].descriptor.shape.elements()
    }

    fn has(&self, value: &ValueId, count: usize) -> Checked {
        ensure(self.elements(value) == count, "a value has as many elements as its kernel says")
    }

    fn stored(&self, stores: &[Store], dims: &[usize], instructions: usize) -> Checked {
        ensure(!stores.is_empty(), "a kernel stores something")?;
        for store in stores {
            self.has(&store.value, dims.iter().product())?;
            ensure((store.register.0 as usize) < instructions, "what is stored is an instruction's result")?;
        }
        Ok(())
    }

    fn factor(&self, factor: &Factor, batch: usize, size: usize) -> Checked {
        let last = batch.saturating_sub(1).saturating_mul(factor.batch_stride).saturating_add(size);
        ensure(last <= self.elements(&factor.value), "a product reads within its factors")
    }

    fn windows(&self, values: &[&ValueId]) -> Checked {
        let are = values.iter().all(|value| self.0.values[value.index()].descriptor.shape.rank() == 4);
        ensure(are, "windows have four dimensions")
    }

    /// Whether a `Body::Chain` is sound; other bodies are not asked about.
    fn chain(&self, body: &Body) -> Checked {
        let Body::Chain { dims, products, link, softmax, end, results, epilogue } = body else { return Ok(()) };
        let [batches @ .., rows, columns] = &dims[..] else { return Err("a chain's matrix has rows and columns") };
        let batch: usize = batches.iter().product();
        ensure(!link.instructions.is_empty() && !products.is_empty(), "a chain is made of products")?;
        for product in products {
            self.factor(&product.a, batch, rows * product.depth)?;
            self.factor(&product.b, batch, columns * product.depth)?;
        }
        let rows_of = |value: &Option<ValueId>| value.as_ref().map_or(Ok(()), |value| self.has(value, batch * rows));
        softmax.iter().try_for_each(|softmax| rows_of(&softmax.largest).and(rows_of(&softmax.sum)))?;
        let size = match end {
            End::Fold(_) => batch * rows,
            End::Product { factor: read, columns: n, .. } => {
                self.factor(read, batch, columns * n)?;
                batch * rows * n
            }
        };
        ensure(results.iter().product::<usize>() == size, "a chain has its end's results")?;
        self.stored(&epilogue.stores, results, epilogue.expr.instructions.len())
    }
}
