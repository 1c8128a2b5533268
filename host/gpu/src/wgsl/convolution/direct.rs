//! Convolutions as direct loops. An invocation computes a block of channels, so that one load serves several products.

use saggar_tensor::op::Conv2d;

use super::four_dims;
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::ValueId;

/// A convolution or its adjoint with respect to the input. Each result sums, over the taps and the channels of its
/// group, source elements times weights. An invocation computes a block of channels at several positions of a row.
struct ConvolutionSum<'a> {
    source: ValueId,
    filter: ValueId,
    /// `[n, channels, h, w]` of the source; `to` has that of the result.
    from: [usize; 4],
    to: [usize; 4],
    groups: usize,
    /// Height and width of the filter.
    window: [usize; 2],
    /// Elements of the filter between neighbouring channels of the result, and between those of the source.
    weight_strides: [usize; 2],
    /// Whether taps can be outside the source, per axis.
    misses: [bool; 2],
    /// Names `at_{name}` from the result's position and the tap along an axis, and returns the condition that it is
    /// inside the source.
    place: &'a dyn Fn(&mut ShaderWriter<'_>, usize, &str, &str, &str) -> String,
}

/// Returns the channels and positions of one invocation: few loads per product, but enough invocations.
fn block_sizes(w: &ShaderWriter<'_>, sum: &ConvolutionSum<'_>) -> [usize; 2] {
    let [images, channels, height, width] = sum.to;
    let channels = channels / sum.groups;
    let invocations =
        |[block, places]: [usize; 2]| images * sum.groups * channels.div_ceil(block) * height * width.div_ceil(places);
    let (most, least) = if w.tuning.workgroup_memory { (4, 1 << 14) } else { (8, 1 << 9) };
    let sizes = |most: usize| (1..=most).flat_map(move |block| (1..=most).map(move |places| [block, places]));
    let cost = |[block, places]: &[usize; 2]| channels.div_ceil(*block) * width.div_ceil(*places) * (block + places);
    let best = |most: usize| sizes(most).min_by_key(cost).unwrap_or([1, 1]);
    [most, most / 2].map(best).into_iter().find(|&tile| invocations(tile) >= least).unwrap_or_else(|| best(2))
}

/// Writes the kernel of `sum`. `store` writes element `linear` of the result at the given coordinates.
fn write_sum(w: &mut ShaderWriter<'_>, sum: &ConvolutionSum<'_>, store: impl Fn(&mut ShaderWriter<'_>, [&str; 6])) {
    let [block, places] = block_sizes(w, sum);
    let (to, from) = (sum.to, sum.from);
    let (to_channels, from_channels) = (to[1] / sum.groups, from[1] / sum.groups);
    let (blocks, columns) = (to_channels.div_ceil(block), to[3].div_ceil(places));
    let taps = sum.window[0] * sum.window[1];
    w.invocation_per_element(to[0] * sum.groups * blocks * to[2] * columns);
    let indices = w.coordinates(&[to[0], sum.groups, blocks, to[2], columns], "id", "i", &[]);
    w.line(format!("let image = {};\nlet part = {};", indices[0], indices[1]));
    w.line(format!("let first = {} * {block}u;\nlet y = {};", indices[2], indices[3]));
    for p in 0..places {
        w.line(format!("let x{p} = min({} + {}u, {}u);", indices[4], p * columns, to[3] - 1));
    }
    let start = to_channels * from_channels * taps;
    for j in 0..block {
        let channel = format!("min(first + {j}u, {}u)", to_channels - 1);
        w.line(format!("let weight{j} = part * {start}u + {channel} * {}u;", sum.weight_strides[0]));
        for p in 0..places {
            w.line(format!("var sum{j}_{p} = 0.0;"));
        }
    }
    w.open_loop("ky", sum.window[0]);
    let inside = (sum.place)(w, 0, "y", "ky", "y");
    w.open(if sum.misses[0] { format!("if ({inside})") } else { String::new() });
    w.open_loop("kx", sum.window[1]);
    let inside: Vec<String> =
        (0..places).map(|p| (sum.place)(w, 1, &format!("x{p}"), "kx", &format!("x{p}"))).collect();
    w.open_loop("c", from_channels);
    w.line(format!(
        "let row = ((image * {}u + part * {from_channels}u + c) * {}u + at_y) * {}u;",
        from[1], from[2], from[3]
    ));
    w.line(format!("let tap = c * {}u + ky * {}u + kx;", sum.weight_strides[1], sum.window[1]));
    for (p, inside) in inside.iter().enumerate() {
        let element = w.element(sum.source, &format!("row + at_x{p}"));
        if sum.misses[1] {
            w.line(format!("var value{p} = 0.0;\nif ({inside}) {{ value{p} = {element}; }}"));
        } else {
            w.line(format!("let value{p} = {element};"));
        }
    }
    for j in 0..block {
        let weight = w.element(sum.filter, &format!("weight{j} + tap"));
        w.line(format!("let factor{j} = {weight};"));
        for p in 0..places {
            w.line(format!("sum{j}_{p} += value{p} * factor{j};"));
        }
    }
    (0..4).for_each(|_| w.close());
    let sums: Vec<String> = (0..block * places).map(|i| format!("sum{}_{}", i / places, i % places)).collect();
    w.line(format!("var sums = array<f32, {}>({});", sums.len(), sums.join(", ")));
    w.open_loop("j", block);
    w.open_loop("p", places);
    w.line(format!("let channel = part * {to_channels}u + first + j;\nlet x = {} + p * {columns}u;", indices[4]));
    w.open(format!("if (first + j < {to_channels}u && x < {}u)", to[3]));
    w.line(format!("let linear = ((image * {}u + channel) * {}u + y) * {}u + x;", to[1], to[2], to[3]));
    store(w, ["image", "channel", "y", "x", "linear", &format!("sums[j * {places}u + p]")]);
    (0..3).for_each(|_| w.close());
}

/// Writes the convolution; the function `finish` must exist.
pub(super) fn conv2d(w: &mut ShaderWriter<'_>, conv: &Conv2d, input: ValueId, filter: ValueId, result: [usize; 4]) {
    let (from, f) = (four_dims(w.dims(input)), w.dims(filter));
    let place = |w: &mut ShaderWriter<'_>, axis: usize, out: &str, tap: &str, name: &str| {
        let (stride, dilation, padding) = (conv.strides[axis], conv.dilations[axis], conv.padding[2 * axis]);
        // Positions before the start wrap to large numbers.
        w.line(format!("let at_{name} = {out} * {stride}u + {tap} * {dilation}u - {padding}u;"));
        format!("at_{name} < {}u", from[2 + axis])
    };
    let misses = [0, 1].map(|axis| conv.padding[2 * axis] + conv.padding[2 * axis + 1] > 0);
    let description = ConvolutionSum {
        source: input,
        filter,
        from,
        to: result,
        groups: conv.groups,
        window: [f[2], f[3]],
        weight_strides: [f[1] * f[2] * f[3], f[2] * f[3]],
        misses,
        place: &place,
    };
    write_sum(w, &description, |w, arguments| {
        w.line(format!("finish({});", arguments.join(", ")));
    })
}

/// Writes the adjoint with respect to the input.
pub(super) fn input_grad(w: &mut ShaderWriter<'_>, conv: &Conv2d, gradient: ValueId, filter: ValueId, output: ValueId) {
    let (to, from, f) = (four_dims(w.dims(output)), four_dims(w.dims(gradient)), w.dims(filter));
    let place = |w: &mut ShaderWriter<'_>, axis: usize, x: &str, tap: &str, name: &str| {
        let (stride, dilation, padding) = (conv.strides[axis], conv.dilations[axis], conv.padding[2 * axis]);
        w.line(format!("let far_{name} = {x} + {padding}u - {tap} * {dilation}u;"));
        w.line(format!("let at_{name} = far_{name} / {stride}u;"));
        let near = format!("at_{name} < {}u", from[2 + axis]);
        if stride == 1 { near } else { format!("far_{name} % {stride}u == 0u && {near}") }
    };
    let description = ConvolutionSum {
        source: gradient,
        filter,
        from,
        to,
        groups: conv.groups,
        window: [f[2], f[3]],
        weight_strides: [f[2] * f[3], f[1] * f[2] * f[3]],
        misses: [true; 2],
        place: &place,
    };
    write_sum(w, &description, |w, [_, _, _, _, linear, value]| w.store(output, linear, value))
}

/// Writes the adjoint with respect to the filter. The lanes of a workgroup share the sums over images and positions,
/// for a block of output channels. If shaders run on a CPU, also for several taps of a row, which saves loads but costs
/// parallelism.
pub(super) fn filter_grad(w: &mut ShaderWriter<'_>, conv: &Conv2d, input: ValueId, gradient: ValueId, output: ValueId) {
    let (x, f, dy) = (four_dims(w.dims(input)), four_dims(w.dims(output)), four_dims(w.dims(gradient)));
    let (most, lanes) = if w.tuning.workgroup_memory { ([4, 1], 256) } else { ([8, 8], 64) };
    let group_out = f[0] / conv.groups;
    let [block, taps] = [group_out.min(most[0]), f[3].min(most[1])];
    let (blocks, columns) = (group_out.div_ceil(block), f[3].div_ceil(taps));
    let (length, sums) = (dy[0] * dy[2] * dy[3], block * taps);
    let count = conv.groups * blocks * f[1] * f[2] * columns;
    w.global(format!("var<workgroup> partial: array<f32, {}>;\n", lanes * sums));
    w.dispatch(count, lanes as u32);
    w.line(format!("let id = min(tile, {}u);", count - 1));
    let indices = w.coordinates(&[conv.groups, blocks, f[1], f[2], columns], "id", "i", &[]);
    w.line(format!("let part = {};\nlet first = {} * {block}u;", indices[0], indices[1]));
    w.line(format!("let c = {};\nlet ky = {};\nlet kx = {} * {taps}u;", indices[2], indices[3], indices[4]));
    for i in 0..sums {
        w.line(format!("var sum{i} = 0.0;"));
    }
    if length > 0 {
        accumulate_products(w, conv, [input, gradient], [x, f, dy], [block, taps, lanes]);
    }
    for i in 0..sums {
        w.line(format!("partial[{}u + lane] = sum{i};", i * lanes));
    }
    w.line("workgroupBarrier();");
    w.open(format!("if (tile < {count}u && lane < {sums}u)"));
    w.line(format!("let out = first + lane / {taps}u;\nlet tap = kx + lane % {taps}u;"));
    w.open(format!("if (out < {group_out}u && tap < {}u)", f[3]));
    w.line("var total = 0.0;");
    w.open_loop("i", lanes);
    w.line(format!("total += partial[lane * {lanes}u + i];"));
    w.close();
    let at = format!("(((part * {group_out}u + out) * {}u + c) * {}u + ky) * {}u + tap", f[1], f[2], f[3]);
    w.store(output, &at, "total");
    w.close();
    w.close();
}

/// Adds, for each position of the lane, the products of the block's gradients with the taps' inputs.
fn accumulate_products(
    w: &mut ShaderWriter<'_>,
    conv: &Conv2d,
    [input, gradient]: [ValueId; 2],
    [x, f, dy]: [[usize; 4]; 3],
    [block, taps, lanes]: [usize; 3],
) {
    let (length, group_out) = (dy[0] * dy[2] * dy[3], f[0] / conv.groups);
    let place = |name: &str, axis: usize, tap: &str| {
        let (stride, dilation, padding) = (conv.strides[axis], conv.dilations[axis], conv.padding[2 * axis]);
        format!("{name} * {stride}u + ({tap}) * {dilation}u - {padding}u")
    };
    w.open_for(format!("for (var i = lane; i < {length}u; i += {lanes}u)"), length.div_ceil(lanes));
    let places = w.coordinates(&[dy[0], dy[2], dy[3]], "i", "o", &[]);
    w.line(format!("let in_y = {};", place(&places[1], 0, "ky")));
    w.open(format!("if (in_y < {}u)", x[2]));
    w.line(format!("let row = (({} * {}u + part * {}u + c) * {}u + in_y) * {}u;", places[0], x[1], f[1], x[2], x[3]));
    for t in 0..taps {
        w.line(format!("let in_x{t} = {};", place(&places[2], 1, &format!("kx + {t}u"))));
        let element = w.element(input, &format!("row + in_x{t}"));
        w.line(format!("var value{t} = 0.0;\nif (in_x{t} < {}u) {{ value{t} = {element}; }}", x[3]));
    }
    for j in 0..block {
        let channel = format!("part * {group_out}u + min(first + {j}u, {}u)", group_out - 1);
        let at = format!(
            "(({} * {}u + {channel}) * {}u + {}) * {}u + {}",
            places[0], dy[1], dy[2], places[1], dy[3], places[2]
        );
        let element = w.element(gradient, &at);
        w.line(format!("let factor{j} = {element};"));
        for t in 0..taps {
            w.line(format!("sum{} += value{t} * factor{j};", j * taps + t));
        }
    }
    w.close();
    w.close();
}
