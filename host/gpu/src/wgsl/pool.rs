//! WGSL for pooling and its gradients; each result gathers its operands.

use saggar_tensor::op::{Pool2d, PoolKind};

use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::ValueId;

const AXES: [&str; 2] = ["y", "x"];

/// Opens loops over the taps inside an input of `size`, for the window at `{out}y`, `{out}x`. `{tap}y`, `{tap}x` is the
/// tap's position in the input. Opens two blocks per axis.
fn open_taps(w: &mut ShaderWriter<'_>, pool: &Pool2d, size: [usize; 2], out: &str, tap: &str) {
    for (axis, name) in AXES.iter().enumerate() {
        w.open_loop(&format!("{tap}k{name}"), pool.window[axis]);
        w.line(format!(
            "let {tap}{name} = {out}{name} * {}u + {tap}k{name} * {}u - {}u;",
            pool.strides[axis],
            pool.dilations[axis],
            pool.padding[2 * axis]
        ));
        // Positions before the start have wrapped to large numbers.
        w.open(format!("if ({tap}{name} < {}u)", size[axis]));
    }
}

/// Opens loops over the windows of an output of `size` that contain the input position `y`, `x`. The window is
/// `{out}y`, `{out}x`.
fn open_windows(w: &mut ShaderWriter<'_>, pool: &Pool2d, size: [usize; 2], out: &str) {
    for (axis, name) in AXES.iter().enumerate() {
        let stride = pool.strides[axis];
        w.open_loop(&format!("k{name}"), pool.window[axis]);
        w.line(format!("let t{name} = {name} + {}u - k{name} * {}u;", pool.padding[2 * axis], pool.dilations[axis]));
        w.line(format!("let {out}{name} = t{name} / {stride}u;"));
        w.open(format!("if (t{name} % {stride}u == 0u && {out}{name} < {}u)", size[axis]));
    }
}

fn close_axes(w: &mut ShaderWriter<'_>) {
    for _ in 0..4 {
        w.close();
    }
}

/// Starts a kernel over an `[n, c, h, w]` tensor of `dims`: names `image` (over `n * c`), `y` and `x`.
fn begin_image_kernel(w: &mut ShaderWriter<'_>, dims: &[usize]) -> bool {
    let count = dims.iter().product();
    if count == 0 {
        return false;
    }
    w.invocation_per_element(count);
    w.line(format!("let image = id / {}u;", dims[2] * dims[3]));
    w.line(format!("let y = (id / {}u) % {}u;", dims[3], dims[2]));
    w.line(format!("let x = id % {}u;", dims[3]));
    true
}

fn plane_sizes(dims: &[usize]) -> [usize; 2] {
    [dims[2], dims[3]]
}

fn element_index(dims: &[usize], name: &str) -> String {
    format!("(image * {}u + {name}y) * {}u + {name}x", dims[2], dims[3])
}

/// Writes pooling: `[n, c, h, w]` to `[n, c, oh, ow]`.
pub(super) fn pool2d(w: &mut ShaderWriter<'_>, kind: PoolKind, pool: &Pool2d, input: ValueId, output: ValueId) {
    if !begin_image_kernel(w, w.dims(output)) {
        return;
    }
    let dims = w.dims(input);
    let (identity, fold) = match kind {
        PoolKind::Max => ("float_bits(0xff800000u)", "max_nan(total, value)"),
        PoolKind::Sum => ("0.0", "total + value"),
    };
    w.line(format!("var total = {identity};"));
    open_taps(w, pool, plane_sizes(dims), "", "in_");
    let value = w.element(input, &element_index(dims, "in_"));
    w.line(format!("let value = {value};"));
    w.line(format!("total = {fold};"));
    close_axes(w);
    w.store(output, "id", "total")
}

/// Writes the gradient of max pooling: for each element, the sum of the gradients of the windows in which it is the
/// first largest.
pub(super) fn max_pool_grad(
    w: &mut ShaderWriter<'_>,
    pool: &Pool2d,
    input: ValueId,
    gradient: ValueId,
    output: ValueId,
) {
    if !begin_image_kernel(w, w.dims(output)) {
        return;
    }
    let (dims, windows) = (w.dims(input), w.dims(gradient));
    w.line("var total = 0.0;");
    open_windows(w, pool, plane_sizes(windows), "out_");
    w.line("var best = 0.0;");
    w.line("var best_index = 0xffffffffu;");
    open_taps(w, pool, plane_sizes(dims), "out_", "in_");
    w.line(format!("let here = {};", element_index(dims, "in_")));
    let value = w.element(input, "here");
    w.line(format!("let value = {value};"));
    w.open("if (best_index == 0xffffffffu || value > best || (is_nan(value) && !is_nan(best)))");
    w.line("best = value;");
    w.line("best_index = here;");
    w.close();
    close_axes(w);
    let value = w.element(gradient, &element_index(windows, "out_"));
    w.line(format!("if (best_index == id) {{ total = total + {value}; }}"));
    close_axes(w);
    w.store(output, "id", "total")
}

/// Writes the adjoint of sum pooling: for each element, the sum of the gradients of all windows that contain it.
pub(super) fn sum_pool_grad(w: &mut ShaderWriter<'_>, pool: &Pool2d, gradient: ValueId, output: ValueId) {
    if !begin_image_kernel(w, w.dims(output)) {
        return;
    }
    let windows = w.dims(gradient);
    w.line("var total = 0.0;");
    open_windows(w, pool, plane_sizes(windows), "out_");
    let value = w.element(gradient, &element_index(windows, "out_"));
    w.line(format!("total = total + {value};"));
    close_axes(w);
    w.store(output, "id", "total")
}
