//! Convolutions and their adjoints as tiled products (implicit GEMM): the factors are read through the window, so no
//! image is unrolled in memory. Groups are the batch of products. Each function writes nothing and returns false if its
//! sizes fill no tile.
//!
//! | | rows | columns | depth |
//! |---|---|---|---|
//! | convolution | output channels | result positions | input channels and taps |
//! | adjoint, input | input channels | input positions | output channels and taps |
//! | adjoint, filter | output channels | input channels and taps | result positions |

use saggar_tensor::op::Conv2d;

use super::four_dims;
use crate::wgsl::contract::{MatMulOperand, MatrixTileOperand};
use crate::wgsl::expression::finish_function;
use crate::wgsl::tile::{self, ContiguousAxis, ElementGroup, TileOperand, TileOutput};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::{Epilogue, ValueId};

/// Sizes of a convolution; channel counts are per group unless stated otherwise.
struct TiledConvGeometry<'a> {
    conv: &'a Conv2d,
    /// `[n, c, h, w]`, all groups.
    input: [usize; 4],
    /// `[n, o, oh, ow]`, all groups.
    result: [usize; 4],
    channels_in: usize,
    channels_out: usize,
    /// Height and width of the window.
    window: [usize; 2],
}

impl<'a> TiledConvGeometry<'a> {
    fn new(conv: &'a Conv2d, input: [usize; 4], filter: &[usize], result: [usize; 4]) -> TiledConvGeometry<'a> {
        let (channels_in, channels_out) = (filter[1], filter[0] / conv.groups);
        TiledConvGeometry { conv, input, result, channels_in, channels_out, window: [filter[2], filter[3]] }
    }

    fn taps(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Returns whether every result depends on one input element at the same position.
    fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.conv.strides == [1, 1] && self.conv.padding == [0; 4]
    }

    /// Returns the number of result positions and of input positions.
    fn places(&self) -> [usize; 2] {
        [self.result, self.input].map(|[n, _, h, w]| n * h * w)
    }
}

pub(super) fn conv2d(
    w: &mut ShaderWriter<'_>,
    conv: &Conv2d,
    input: ValueId,
    filter: ValueId,
    result: [usize; 4],
    epilogue: &Epilogue,
) -> bool {
    let geometry = &TiledConvGeometry::new(conv, four_dims(w.dims(input)), w.dims(filter), result);
    let (m, k) = (geometry.channels_out, geometry.channels_in * geometry.taps());
    let n = geometry.places()[0];
    let sizes = [conv.groups, m, n, k];
    let Some(plan) = tile::tile_plan(w, sizes, [filter, input]) else { return false };
    let weights = MatMulOperand { value: filter, transposed: false, batch_stride: m * k };
    let weights = MatrixTileOperand::new(w, &weights, [k, 1], m, k);
    let images = Im2colOperand::new(w, geometry, input, ContiguousAxis::Side);
    tile::tiled_product(w, sizes, &plan, [&weights, &images], &Conv2dOutput { geometry, epilogue });
    true
}

pub(super) fn input_grad(
    w: &mut ShaderWriter<'_>,
    conv: &Conv2d,
    gradient: ValueId,
    filter: ValueId,
    output: ValueId,
) -> bool {
    let geometry =
        &TiledConvGeometry::new(conv, four_dims(w.dims(output)), w.dims(filter), four_dims(w.dims(gradient)));
    let (m, k) = (geometry.channels_in, geometry.channels_out * geometry.taps());
    let n = geometry.places()[1];
    let sizes = [conv.groups, m, n, k];
    let Some(plan) = tile::tile_plan(w, sizes, [filter, gradient]) else { return false };
    let weights = MatMulOperand { value: filter, transposed: true, batch_stride: m * k };
    let matrix = MatrixTileOperand::new(w, &weights, [1, m], m, k);
    let turned = TransposedFilterOperand { geometry, filter };
    let weights: &dyn TileOperand = if geometry.taps() == 1 { &matrix } else { &turned };
    let spread = InputGradOperand { geometry, gradient };
    tile::tiled_product(w, sizes, &plan, [weights, &spread], &InputGradOutput { geometry, output });
    true
}

pub(super) fn filter_grad(
    w: &mut ShaderWriter<'_>,
    conv: &Conv2d,
    input: ValueId,
    gradient: ValueId,
    output: ValueId,
) -> bool {
    let geometry = &TiledConvGeometry::new(conv, four_dims(w.dims(input)), w.dims(output), four_dims(w.dims(gradient)));
    let (m, n) = (geometry.channels_out, geometry.channels_in * geometry.taps());
    let k = geometry.places()[0];
    let sizes = [conv.groups, m, n, k];
    let Some(plan) = tile::tile_plan(w, sizes, [gradient, input]) else { return false };
    let gradients = GradientPlaneOperand::new(w, geometry, gradient);
    let images = Im2colOperand::new(w, geometry, input, ContiguousAxis::Depth);
    tile::tiled_product(w, sizes, &plan, [&gradients, &images], &FilterGradOutput { output, m, n });
    true
}

/// The im2col view of the image: one element for each result position and each channel and tap.
struct Im2colOperand<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    input: ValueId,
    /// Axis of the result positions.
    places: ContiguousAxis,
    in_quads: bool,
}

impl Im2colOperand<'_> {
    fn new<'a>(
        w: &ShaderWriter<'_>,
        geometry: &'a TiledConvGeometry<'a>,
        input: ValueId,
        places: ContiguousAxis,
    ) -> Im2colOperand<'a> {
        let plane = geometry.input[2] * geometry.input[3];
        let in_quads = geometry.is_pointwise() && plane.is_multiple_of(4) && w.has_vectors(input);
        Im2colOperand { geometry, input, places, in_quads }
    }

    /// Names the origin of a result position's window: its image and group, row and column. Origins before the image
    /// wrap to large numbers.
    fn place(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let ([n, _, oh, ow], [_, c, height, width]) = (self.geometry.result, self.geometry.input);
        let names = w.coordinates(&[n, oh, ow], at, &format!("{name}_r"), &[]);
        let (channels, plane) = (self.geometry.channels_in, height * width);
        w.line(format!("let {name} = ({} * {c}u + batch * {channels}u) * {plane}u;", names[0]));
        for (axis, letter) in ["y", "x"].into_iter().enumerate() {
            let (stride, padding) = (self.geometry.conv.strides[axis], self.geometry.conv.padding[2 * axis]);
            w.line(format!("let {name}{letter} = {} * {stride}u - {padding}u;", names[1 + axis]));
        }
    }

    /// Names a channel's plane, and a tap's offset from the window's origin.
    fn tap(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let [_, _, height, width] = self.geometry.input;
        let [kh, kw] = self.geometry.window;
        let names = w.coordinates(&[self.geometry.channels_in, kh, kw], at, &format!("{name}_r"), &[]);
        w.line(format!("let {name} = {} * {}u;", names[0], height * width));
        for (axis, letter) in ["y", "x"].into_iter().enumerate() {
            w.line(format!("let {name}{letter} = {} * {}u;", names[1 + axis], self.geometry.conv.dilations[axis]));
        }
    }
}

impl TileOperand for Im2colOperand<'_> {
    fn contiguous_axis(&self) -> ContiguousAxis {
        self.places
    }

    fn in_quads(&self) -> bool {
        self.in_quads
    }

    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        match self.places {
            ContiguousAxis::Side => self.place(w, at, name),
            ContiguousAxis::Depth => self.tap(w, at, name),
        }
    }

    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        match self.places {
            ContiguousAxis::Side => self.tap(w, at, name),
            ContiguousAxis::Depth => self.place(w, at, name),
        }
    }

    fn elements(
        &self,
        w: &mut ShaderWriter<'_>,
        side: &str,
        depth: &str,
        group: ElementGroup,
    ) -> (String, Option<String>) {
        let [_, _, height, width] = self.geometry.input;
        let padding = self.geometry.conv.padding;
        let at = format!("{side} + {depth} + ({side}y + {depth}y) * {width}u + {side}x + {depth}x");
        let mut inside = Vec::new();
        if padding[0] + padding[1] > 0 {
            inside.push(format!("{side}y + {depth}y < {height}u"));
        }
        if padding[2] + padding[3] > 0 {
            inside.push(format!("{side}x + {depth}x < {width}u"));
        }
        (group.read(w, self.input, &at), (!inside.is_empty()).then(|| inside.join(" && ")))
    }
}

/// The results' gradient seen through the window: one element for each input position and each result channel and tap.
struct InputGradOperand<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    gradient: ValueId,
}

impl TileOperand for InputGradOperand<'_> {
    fn contiguous_axis(&self) -> ContiguousAxis {
        ContiguousAxis::Side
    }

    fn in_quads(&self) -> bool {
        false
    }

    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let ([n, _, height, width], [_, o, oh, ow]) = (self.geometry.input, self.geometry.result);
        let names = w.coordinates(&[n, height, width], at, &format!("{name}_r"), &[]);
        let (channels, plane) = (self.geometry.channels_out, oh * ow);
        w.line(format!("let {name} = ({} * {o}u + batch * {channels}u) * {plane}u;", names[0]));
        for (axis, letter) in ["y", "x"].into_iter().enumerate() {
            let padding = self.geometry.conv.padding[2 * axis];
            w.line(format!("let {name}{letter} = {} + {padding}u;", names[1 + axis]));
        }
    }

    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let ([_, _, oh, ow], [kh, kw]) = (self.geometry.result, self.geometry.window);
        let names = w.coordinates(&[self.geometry.channels_out, kh, kw], at, &format!("{name}_r"), &[]);
        w.line(format!("let {name} = {} * {}u;", names[0], oh * ow));
        for (axis, letter) in ["y", "x"].into_iter().enumerate() {
            w.line(format!("let {name}{letter} = {} * {}u;", names[1 + axis], self.geometry.conv.dilations[axis]));
        }
    }

    fn elements(&self, w: &mut ShaderWriter<'_>, side: &str, depth: &str, _: ElementGroup) -> (String, Option<String>) {
        let [_, _, oh, ow] = self.geometry.result;
        let mut inside = Vec::new();
        let mut places = [String::new(), String::new()];
        for (axis, (letter, size)) in [("y", oh), ("x", ow)].into_iter().enumerate() {
            let stride = self.geometry.conv.strides[axis];
            // Positions before the first result wrap to a large number.
            let far = format!("({side}{letter} - {depth}{letter})");
            places[axis] = if stride == 1 { far.clone() } else { format!("{far} / {stride}u") };
            if stride > 1 {
                inside.push(format!("{far} % {stride}u == 0u"));
            }
            inside.push(format!("{} < {size}u", places[axis]));
        }
        let at = format!("{side} + {depth} + {} * {ow}u + {}", places[0], places[1]);
        (w.element(self.gradient, &at), Some(inside.join(" && ")))
    }
}

/// The filter with its channels exchanged: rows are input channels, the depth is output channels and taps.
struct TransposedFilterOperand<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    filter: ValueId,
}

impl TileOperand for TransposedFilterOperand<'_> {
    fn contiguous_axis(&self) -> ContiguousAxis {
        ContiguousAxis::Depth
    }

    fn in_quads(&self) -> bool {
        false
    }

    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let (of_input, of_results) = (self.geometry.taps(), self.geometry.channels_in * self.geometry.taps());
        let channels = self.geometry.channels_out;
        w.line(format!("let {name} = batch * {}u + {at} * {of_input}u;", channels * of_results));
    }

    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let (taps, channels) = (self.geometry.taps(), self.geometry.channels_in);
        w.line(format!("let {name} = {at} / {taps}u * {}u + {at} % {taps}u;", channels * taps));
    }

    fn elements(&self, w: &mut ShaderWriter<'_>, side: &str, depth: &str, _: ElementGroup) -> (String, Option<String>) {
        (w.element(self.filter, &format!("{side} + {depth}")), None)
    }
}

/// The gradient of the results: rows are channels, the depth is positions.
struct GradientPlaneOperand<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    gradient: ValueId,
    in_quads: bool,
}

impl GradientPlaneOperand<'_> {
    fn new<'a>(
        w: &ShaderWriter<'_>,
        geometry: &'a TiledConvGeometry<'a>,
        gradient: ValueId,
    ) -> GradientPlaneOperand<'a> {
        let [_, _, oh, ow] = geometry.result;
        GradientPlaneOperand { geometry, gradient, in_quads: (oh * ow).is_multiple_of(4) && w.has_vectors(gradient) }
    }
}

impl TileOperand for GradientPlaneOperand<'_> {
    fn contiguous_axis(&self) -> ContiguousAxis {
        ContiguousAxis::Depth
    }

    fn in_quads(&self) -> bool {
        self.in_quads
    }

    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let [_, _, oh, ow] = self.geometry.result;
        w.line(format!("let {name} = (batch * {}u + {at}) * {}u;", self.geometry.channels_out, oh * ow));
    }

    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        let [_, o, oh, ow] = self.geometry.result;
        let plane = oh * ow;
        w.line(format!("let {name} = {at} / {plane}u * {}u + {at} % {plane}u;", o * plane));
    }

    fn elements(
        &self,
        w: &mut ShaderWriter<'_>,
        side: &str,
        depth: &str,
        group: ElementGroup,
    ) -> (String, Option<String>) {
        (group.read(w, self.gradient, &format!("{side} + {depth}")), None)
    }
}

/// Results of a convolution; the function `finish` is the epilogue.
struct Conv2dOutput<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    epilogue: &'a Epilogue,
}

impl TileOutput for Conv2dOutput<'_> {
    fn begin(&self, w: &mut ShaderWriter<'_>) {
        finish_function(w, self.epilogue, &self.geometry.result)
    }

    fn column(&self, w: &mut ShaderWriter<'_>, column: &str) {
        let [n, _, oh, ow] = self.geometry.result;
        let names = w.coordinates(&[n, oh, ow], column, "at_r", &[]);
        for (name, text) in ["at_image", "at_y", "at_x"].into_iter().zip(names) {
            w.line(format!("let {name} = {text};"));
        }
    }

    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, _: &str, sum: &str) {
        let [_, o, oh, ow] = self.geometry.result;
        w.line(format!("let channel = batch * {}u + {row};", self.geometry.channels_out));
        w.line(format!("let linear = ((at_image * {o}u + channel) * {oh}u + at_y) * {ow}u + at_x;"));
        w.line(format!("finish(at_image, channel, at_y, at_x, linear, {sum});"));
    }
}

/// Gradients of the input.
struct InputGradOutput<'a> {
    geometry: &'a TiledConvGeometry<'a>,
    output: ValueId,
}

impl TileOutput for InputGradOutput<'_> {
    fn begin(&self, _: &mut ShaderWriter<'_>) {}

    fn column(&self, w: &mut ShaderWriter<'_>, column: &str) {
        let [_, c, height, width] = self.geometry.input;
        let plane = height * width;
        w.line(format!("let at_image = {column} / {plane}u * {}u + {column} % {plane}u;", c * plane));
    }

    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, _: &str, sum: &str) {
        let [_, _, height, width] = self.geometry.input;
        let channels = self.geometry.channels_in;
        w.store(self.output, &format!("at_image + (batch * {channels}u + {row}) * {}u", height * width), sum)
    }
}

/// Gradients of the filter.
struct FilterGradOutput {
    output: ValueId,
    m: usize,
    n: usize,
}

impl TileOutput for FilterGradOutput {
    fn begin(&self, _: &mut ShaderWriter<'_>) {}

    fn column(&self, _: &mut ShaderWriter<'_>, _: &str) {}

    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, column: &str, sum: &str) {
        w.store(self.output, &format!("(batch * {}u + {row}) * {}u + {column}", self.m, self.n), sum)
    }
}
