//! WGSL for convolutions and their adjoints: tiled products if the adapter has workgroup memory and the sizes fill a
//! tile, direct loops otherwise.

mod direct;
mod tiled;

use saggar_tensor::op::Conv2d;

use super::expression::finish_function;
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::{Epilogue, ValueId};

fn four_dims(dims: &[usize]) -> [usize; 4] {
    [dims[0], dims[1], dims[2], dims[3]]
}

/// Writes a convolution: `[n, c, h, w]` and filter `[o, c/groups, kh, kw]` to `[n, o, oh, ow]`.
pub(super) fn conv2d(
    w: &mut ShaderWriter<'_>,
    conv: &Conv2d,
    input: ValueId,
    filter: ValueId,
    result: [usize; 4],
    epilogue: &Epilogue,
) {
    if result.contains(&0) {
        return;
    }
    if tiled::conv2d(w, conv, input, filter, result, epilogue) {
        return;
    }
    finish_function(w, epilogue, &result);
    direct::conv2d(w, conv, input, filter, result)
}

/// Writes the adjoint with respect to the input: `[n, o, oh, ow]` and filter to `[n, c, h, w]`.
pub(super) fn input_grad(w: &mut ShaderWriter<'_>, conv: &Conv2d, gradient: ValueId, filter: ValueId, output: ValueId) {
    if w.dims(output).contains(&0) {
        return;
    }
    if tiled::input_grad(w, conv, gradient, filter, output) {
        return;
    }
    direct::input_grad(w, conv, gradient, filter, output)
}

/// Writes the adjoint with respect to the filter: `[n, c, h, w]` and `[n, o, oh, ow]` to `[o, c/groups, kh, kw]`.
pub(super) fn filter_grad(w: &mut ShaderWriter<'_>, conv: &Conv2d, input: ValueId, gradient: ValueId, output: ValueId) {
    if w.dims(output).contains(&0) {
        return;
    }
    if tiled::filter_grad(w, conv, input, gradient, output) {
        return;
    }
    direct::filter_grad(w, conv, input, gradient, output)
}
