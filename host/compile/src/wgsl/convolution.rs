//! Convolutions as direct loops. An invocation computes a block of channels, so that one load serves several products.

use saggar_tensor::op::Conv2d;

use super::ShaderError;
use super::expression::finish_function;
use super::reduce::{Lanes, begin_tree, end_tree};
use crate::program::{Epilogue, ValueId};
use crate::wgsl::writer::Writer;

/// The largest number up to `most` that divides `channels`.
fn block(channels: usize, most: usize) -> usize {
    (1..=most).rev().find(|size| channels.is_multiple_of(*size)).unwrap_or(1)
}

/// `[n, c, h, w]` and filter `[o, c/groups, kh, kw]` to `[n, o, oh, ow]`.
pub(super) fn conv2d(
    w: &mut Writer<'_>,
    conv: &Conv2d,
    input: ValueId,
    filter: ValueId,
    result: [usize; 4],
    epilogue: &Epilogue,
) -> Result<(), ShaderError> {
    let [_, out, height, width] = result;
    if result.contains(&0) {
        return Ok(());
    }
    finish_function(w, epilogue, &result)?;
    let (x, f) = (w.dims(input), w.dims(filter));
    let group_out = out / conv.groups;
    let block = block(group_out, 8);
    w.each(result.iter().product::<usize>() / block);
    w.line(format!("let x = id % {width}u;"));
    w.line(format!("let y = (id / {width}u) % {height}u;"));
    w.line(format!("let first = ((id / {}u) % {}u) * {block}u;", width * height, out / block));
    w.line(format!("let image = id / {}u;", width * height * (out / block)));
    let channels = f[1];
    w.line(format!("let channel = image * {}u + (first / {group_out}u) * {channels}u;", x[1]));
    for j in 0..block {
        w.line(format!("var sum{j} = 0.0;"));
    }
    for (axis, name) in ["y", "x"].iter().enumerate() {
        w.open_loop(&format!("k{name}"), f[2 + axis]);
        w.line(format!(
            "let in_{name} = {name} * {}u + k{name} * {}u - {}u;",
            conv.strides[axis],
            conv.dilations[axis],
            conv.padding[2 * axis]
        ));
        // Places before the beginning have wrapped to large numbers.
        w.open(format!("if (in_{name} < {}u)", x[2 + axis]));
    }
    w.line(format!("var source = (channel * {}u + in_y) * {}u + in_x;", x[2], x[3]));
    w.line(format!("var weight = (first * {}u + ky) * {}u + kx;", channels * f[2], f[3]));
    w.open_loop("c", channels);
    let value = w.element(input, "source")?;
    w.line(format!("let value = {value};"));
    for j in 0..block {
        let weight = w.element(filter, &format!("weight + {}u", j * channels * f[2] * f[3]))?;
        w.line(format!("sum{j} += value * {weight};"));
    }
    w.line(format!("source += {}u;", x[2] * x[3]));
    w.line(format!("weight += {}u;", f[2] * f[3]));
    for _ in 0..5 {
        w.close();
    }
    for j in 0..block {
        let at = format!("((image * {out}u + first + {j}u) * {height}u + y) * {width}u + x");
        w.line(format!("finish(image, first + {j}u, y, x, {at}, sum{j});"));
    }
    Ok(())
}

/// Adjoint in the input: `[n, o, oh, ow]` and filter to `[n, c, h, w]`.
pub(super) fn input_grad(
    w: &mut Writer<'_>,
    conv: &Conv2d,
    gradient: ValueId,
    filter: ValueId,
    output: ValueId,
) -> Result<(), ShaderError> {
    let (x, f, dy) = (w.dims(output), w.dims(filter), w.dims(gradient));
    if x.contains(&0) {
        return Ok(());
    }
    let (channels, group_out) = (f[1], f[0] / conv.groups);
    let block = block(channels, 8);
    let blocks = x[1] / block;
    w.each(x.iter().product::<usize>() / block);
    w.line(format!("let x = id % {}u;", x[3]));
    w.line(format!("let y = (id / {}u) % {}u;", x[3], x[2]));
    w.line(format!("let first = ((id / {}u) % {blocks}u) * {block}u;", x[2] * x[3]));
    w.line(format!("let image = id / {}u;", x[2] * x[3] * blocks));
    w.line(format!("let out = (first / {channels}u) * {group_out}u;"));
    for j in 0..block {
        w.line(format!("var sum{j} = 0.0;"));
    }
    for (axis, name) in ["y", "x"].iter().enumerate() {
        let stride = conv.strides[axis];
        w.open_loop(&format!("k{name}"), f[2 + axis]);
        w.line(format!("let t{name} = {name} + {}u - k{name} * {}u;", conv.padding[2 * axis], conv.dilations[axis]));
        w.line(format!("let out_{name} = t{name} / {stride}u;"));
        w.open(format!("if (t{name} % {stride}u == 0u && out_{name} < {}u)", dy[2 + axis]));
    }
    w.line(format!("var source = ((image * {}u + out) * {}u + out_y) * {}u + out_x;", dy[1], dy[2], dy[3]));
    w.line(format!("var weight = ((out * {channels}u + first % {channels}u) * {}u + ky) * {}u + kx;", f[2], f[3]));
    w.open_loop("o", group_out);
    let value = w.element(gradient, "source")?;
    w.line(format!("let value = {value};"));
    for j in 0..block {
        let weight = w.element(filter, &format!("weight + {}u", j * f[2] * f[3]))?;
        w.line(format!("sum{j} += value * {weight};"));
    }
    w.line(format!("source += {}u;", dy[2] * dy[3]));
    w.line(format!("weight += {}u;", channels * f[2] * f[3]));
    for _ in 0..5 {
        w.close();
    }
    for j in 0..block {
        let at = format!("((image * {}u + first + {j}u) * {}u + y) * {}u + x", x[1], x[2], x[3]);
        let to = w.element(output, &at)?;
        w.line(format!("{to} = sum{j};"));
    }
    Ok(())
}

/// Adjoint in the filter: `[n, c, h, w]` and `[n, o, oh, ow]` to `[o, c/groups, kh, kw]`. The lanes of a workgroup
/// share the sum over images and places.
pub(super) fn filter_grad(
    w: &mut Writer<'_>,
    conv: &Conv2d,
    input: ValueId,
    gradient: ValueId,
    output: ValueId,
) -> Result<(), ShaderError> {
    let (x, f, dy) = (w.dims(input), w.dims(output), w.dims(gradient));
    if f.contains(&0) {
        return Ok(());
    }
    let (channels, group_out) = (f[1], f[0] / conv.groups);
    let block = block(group_out, 4);
    let kind = if block == 1 { "f32".to_owned() } else { format!("vec{block}<f32>") };
    let length = dy[0] * dy[2] * dy[3];
    let count = f.iter().product::<usize>() / block;
    let rows = (length / 4).clamp(1, if w.tuning.workgroup_memory { 256 } else { 64 });
    let rows = if rows.is_power_of_two() { rows } else { rows.next_power_of_two() / 2 };
    let lanes = Lanes { rows, columns: (64 / rows).max(1) };
    begin_tree(w, count, lanes, &kind, &format!("{kind}(0.0)"));
    w.line(format!("let kx = id % {}u;", f[3]));
    w.line(format!("let ky = (id / {}u) % {}u;", f[3], f[2]));
    w.line(format!("let c = (id / {}u) % {channels}u;", f[2] * f[3]));
    w.line(format!("let first = (id / {}u) * {block}u;", channels * f[2] * f[3]));
    w.line(format!("let channel = (first / {group_out}u) * {channels}u + c;"));
    if length > 0 {
        w.open(format!("for (var i = row; i < {length}u; i += {rows}u)"));
        w.line(format!("let x = i % {}u;", dy[3]));
        w.line(format!("let y = (i / {}u) % {}u;", dy[3], dy[2]));
        w.line(format!("let image = i / {}u;", dy[2] * dy[3]));
        for (axis, name) in ["y", "x"].iter().enumerate() {
            let (stride, dilation, padding) = (conv.strides[axis], conv.dilations[axis], conv.padding[2 * axis]);
            w.line(format!("let in_{name} = {name} * {stride}u + k{name} * {dilation}u - {padding}u;"));
        }
        w.open(format!("if (in_y < {}u && in_x < {}u)", x[2], x[3]));
        let value =
            w.element(input, &format!("((image * {}u + channel) * {}u + in_y) * {}u + in_x", x[1], x[2], x[3]))?;
        w.line(format!("let source = ((image * {}u + first) * {}u + y) * {}u + x;", dy[1], dy[2], dy[3]));
        let mut gradients = Vec::with_capacity(block);
        for j in 0..block {
            gradients.push(w.element(gradient, &format!("source + {}u", j * dy[2] * dy[3]))?);
        }
        w.line(format!("total += {value} * {kind}({});", gradients.join(", ")));
        w.close();
        w.close();
    }
    end_tree(w, count, lanes, |a, b| format!("{a} + {b}"));
    w.line(format!("let place = id % {}u;", channels * f[2] * f[3]));
    w.line(format!("let first = (id / {}u) * {block}u;", channels * f[2] * f[3]));
    for j in 0..block {
        let to = w.element(output, &format!("(first + {j}u) * {}u + place", channels * f[2] * f[3]))?;
        let part = if block == 1 { String::new() } else { format!("[{j}]") };
        w.line(format!("{to} = total{part};"));
    }
    w.close();
    Ok(())
}
