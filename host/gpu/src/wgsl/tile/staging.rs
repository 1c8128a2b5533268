//! Staging: loads one factor's part of a tile from storage through registers into workgroup memory.

use super::lane_tile::SharedTile;
use super::{ContiguousAxis, ElementGroup, TileOperand};
use crate::wgsl::writer::ShaderWriter;

/// Padding, in halves, between rows of a factor of cooperative matrices. It keeps rows aligned to a vector of eight and
/// avoids bank conflicts.
const HALVES_APART: usize = 8;

/// Returns the most bytes of workgroup memory of a factor staged as halves, whichever axis it is contiguous along.
pub(in crate::wgsl) fn half_bytes_max(side: usize, depth: usize) -> usize {
    size_of::<u16>() * (side * (depth + HALVES_APART)).max(depth * (side + HALVES_APART))
}

/// One factor's part of a tile during staging.
pub(in crate::wgsl) struct StagedOperand<'a> {
    pub(in crate::wgsl) factor: &'a dyn TileOperand,
    /// Prefix of its names: `a` or `b`.
    pub(in crate::wgsl) name: &'static str,
    /// Origin of the tile along the side.
    pub(in crate::wgsl) origin: &'static str,
    /// Length of the tile's side; `size` is the length of the product's side.
    pub(in crate::wgsl) side: usize,
    pub(in crate::wgsl) size: usize,
    pub(in crate::wgsl) depth: usize,
    pub(in crate::wgsl) lanes: usize,
    pub(in crate::wgsl) in_quads: bool,
    /// Whether it is staged as halves, for cooperative matrices, instead of vectors of words.
    pub(in crate::wgsl) halves: bool,
}

impl StagedOperand<'_> {
    /// Declares the workgroup memory for the factor.
    pub(in crate::wgsl) fn declare_shared_memory(&self, w: &mut ShaderWriter<'_>) {
        let kind = match (self.halves, self.in_quads) {
            (true, true) => "vec4<f16>",
            (true, false) => "f16",
            (false, _) => "vec4<f32>",
        };
        let rows = match self.factor.contiguous_axis() {
            ContiguousAxis::Depth if self.halves => self.side,
            ContiguousAxis::Side | ContiguousAxis::Depth => self.depth,
        };
        w.global(format!("var<workgroup> tile_{}: array<{kind}, {}>;", self.name, rows * self.pitch()));
    }

    /// Returns the number of elements that a lane reads at once.
    fn width(&self) -> usize {
        if self.in_quads { 4 } else { 1 }
    }

    /// Returns the number of reads of a lane for one tile.
    fn parts(&self) -> usize {
        self.side * self.depth / (self.lanes * self.width())
    }

    /// Returns the distance from one row of the tile to the next, in elements of its array. Rows are depths; of halves,
    /// whose order in memory is kept, they are positions along the side if the factor is contiguous along the depth. The
    /// distance is larger than needed where lanes that write or read together would otherwise have bank conflicts.
    pub(in crate::wgsl) fn pitch(&self) -> usize {
        match self.factor.contiguous_axis() {
            ContiguousAxis::Side if self.halves => (self.side + HALVES_APART) / self.width(),
            ContiguousAxis::Depth if self.halves => (self.depth + HALVES_APART) / self.width(),
            ContiguousAxis::Side => self.side / 4,
            ContiguousAxis::Depth => self.side / 4 + 1,
        }
    }

    /// Returns the array element of a factor staged as halves that begins at these positions, and whether elements that
    /// follow it are further along the depth.
    pub(in crate::wgsl) fn half_element(&self, side: &str, depth: &str) -> (String, bool) {
        let along_depth = self.factor.contiguous_axis() == ContiguousAxis::Depth;
        let (row, at) = if along_depth { (side, depth) } else { (depth, side) };
        let at = if self.in_quads { format!("({at}) / 4u") } else { at.to_owned() };
        (format!("tile_{}[({row}) * {}u + {at}]", self.name, self.pitch()), along_depth)
    }

    /// Returns the view of the vectors staged in `array`, `quads` of them for the lane at `place`.
    pub(in crate::wgsl) fn shared_tile<'a>(&self, array: &'a str, quads: usize, place: &'a str) -> SharedTile<'a> {
        SharedTile { array, depth: "i", pitch: self.pitch(), quads, apart: self.side / 4 / quads, place }
    }

    /// Returns the part with the same side position as `part`, and the part with the same depth position.
    fn place_parts(&self, part: usize) -> [usize; 2] {
        match self.factor.contiguous_axis() {
            ContiguousAxis::Side => [0, part],
            ContiguousAxis::Depth => [part, 0],
        }
    }

    /// Names the lane's positions in the tile, `{name}_wide{part}` and `{name}_deep{part}`, and the values that depend
    /// on the former.
    pub(in crate::wgsl) fn name_lane_places(&self, w: &mut ShaderWriter<'_>) {
        let (name, width) = (self.name, self.width());
        let length = match self.factor.contiguous_axis() {
            ContiguousAxis::Side => self.side / width,
            ContiguousAxis::Depth => self.depth / width,
        };
        let along = format!("(lane % {length}u) * {width}u");
        let across = |part: usize| format!("{}u + lane / {length}u", part * (self.lanes / length));
        let (wide, deep) = match self.factor.contiguous_axis() {
            ContiguousAxis::Side => (vec![along], (0..self.parts()).map(across).collect()),
            ContiguousAxis::Depth => ((0..self.parts()).map(across).collect(), vec![along]),
        };
        for (part, place) in deep.iter().enumerate() {
            w.line(format!("let {name}_deep{part} = {place};"));
        }
        for (part, place) in wide.iter().enumerate() {
            w.line(format!("let {name}_wide{part} = {place};"));
            w.line(format!("let {name}_side{part} = {} + {name}_wide{part};", self.origin));
            self.factor.side(w, &format!("{name}_side{part}"), &format!("{name}_s{part}"));
        }
        for part in 0..self.parts() {
            w.line(format!("var {name}_part{part} = {}();", self.register_type()));
        }
    }

    /// Returns the group of elements that a lane reads at once.
    fn group(&self) -> ElementGroup {
        match (self.in_quads, self.halves) {
            (true, true) => ElementGroup::HalfQuad,
            (true, false) => ElementGroup::Quad,
            (false, _) => ElementGroup::Single,
        }
    }

    /// Returns the type of the registers that hold what a lane has read.
    fn register_type(&self) -> &'static str {
        match self.group() {
            ElementGroup::HalfQuad => "vec4<f16>",
            ElementGroup::Quad => "vec4<f32>",
            ElementGroup::Single => "f32",
        }
    }

    /// Loads the lane's elements of the tile that begins at depth `start` into registers.
    pub(in crate::wgsl) fn load_to_registers(&self, w: &mut ShaderWriter<'_>, start: &str, k: usize) {
        let name = self.name;
        w.open("");
        let depths = match self.factor.contiguous_axis() {
            ContiguousAxis::Side => self.parts(),
            ContiguousAxis::Depth => 1,
        };
        for part in 0..depths {
            w.line(format!("let {name}_at{part} = {start} + {name}_deep{part};"));
            self.factor.depth(w, &format!("{name}_at{part}"), &format!("{name}_d{part}"));
        }
        for part in 0..self.parts() {
            let [side, depth] = self.place_parts(part);
            let (element, inside) =
                self.factor.elements(w, &format!("{name}_s{side}"), &format!("{name}_d{depth}"), self.group());
            let mut conditions = Vec::new();
            if !self.size.is_multiple_of(self.side) {
                conditions.push(format!("{name}_side{side} < {}u", self.size));
            }
            if !k.is_multiple_of(self.depth) {
                conditions.push(format!("{name}_at{depth} < {k}u"));
            }
            conditions.extend(inside);
            if conditions.is_empty() {
                w.line(format!("{name}_part{part} = {element};"));
            } else {
                let conditions = conditions.join(" && ");
                w.line(format!("{name}_part{part} = {}();", self.register_type()));
                w.line(format!("if ({conditions}) {{ {name}_part{part} = {element}; }}"));
            }
        }
        w.close();
    }

    /// Stores the loaded registers to workgroup memory.
    pub(in crate::wgsl) fn store_to_shared(&self, w: &mut ShaderWriter<'_>) {
        let (name, pitch) = (self.name, self.pitch());
        for part in 0..self.parts() {
            let [side, depth] = self.place_parts(part);
            let (wide, deep) = (format!("{name}_wide{side}"), format!("{name}_deep{depth}"));
            if self.halves {
                let (element, _) = self.half_element(&wide, &deep);
                let part = format!("{name}_part{part}");
                w.line(format!("{element} = {};", if self.in_quads { part } else { format!("f16({part})") }));
                continue;
            }
            match (self.factor.contiguous_axis(), self.in_quads) {
                (ContiguousAxis::Side, true) => {
                    w.line(format!("tile_{name}[{deep} * {pitch}u + {wide} / 4u] = {name}_part{part};"))
                }
                (ContiguousAxis::Depth, true) => (0..4).for_each(|i| {
                    let place = format!("({deep} + {i}u) * {pitch}u + {wide} / 4u");
                    w.line(format!("tile_{name}[{place}][{wide} % 4u] = {name}_part{part}[{i}];"));
                }),
                (ContiguousAxis::Side | ContiguousAxis::Depth, false) => {
                    w.line(format!("tile_{name}[{deep} * {pitch}u + {wide} / 4u][{wide} % 4u] = {name}_part{part};"));
                }
            }
        }
    }
}
