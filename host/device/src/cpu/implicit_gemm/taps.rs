//! The taps of a filter in the order in which they are taken, and filters laid out in that order.

use crate::cpu::gemm::pack::PanelLayout;

/// A tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterTap {
    /// Rows and columns from a place's own position.
    pub(super) offset: [isize; 2],
    /// Its place in the filter, in row-major order.
    pub(super) index: usize,
}

/// Taps in the order of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterTaps {
    /// Sorted by offset.
    pub(super) list: Vec<FilterTap>,
}

impl FilterTaps {
    /// Those taps of a window for which `offset` gives rows and columns.
    pub(super) fn new(window: [usize; 2], offset: impl Fn([usize; 2]) -> Option<[isize; 2]>) -> FilterTaps {
        let tap = |index: usize| {
            let offset = offset([index / window[1], index % window[1]])?;
            Some(FilterTap { offset, index })
        };
        let mut list: Vec<FilterTap> = (0..window[0] * window[1]).filter_map(tap).collect();
        list.sort_by_key(|tap| tap.offset);
        FilterTaps { list }
    }

    /// Places in the filter, in order.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.list.iter().map(|tap| tap.index as u32).collect()
    }
}

/// Which channels of a filter are summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum SummedChannels {
    /// Those of the input: a convolution.
    Inputs,
    /// Those of the result: its adjoint.
    Outputs,
    /// Those of the result, each tap of an input channel being a column: what a place of the result gives to all places
    /// under its window.
    OutputsAlone,
}

/// A filter `[o, c, kh, kw]` as the second operand of products: taps and the channels that are summed over, by the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PackedFilterLayout {
    /// The panels.
    pub(in super::super) layout: PanelLayout,
    /// Places of taps in the filter, in order.
    pub(super) taps: Vec<u32>,
    /// Taps of the filter.
    pub(super) window: usize,
    /// Input channels.
    pub(super) inputs: usize,
    /// What is summed over.
    pub(super) order: SummedChannels,
}

impl PackedFilterLayout {
    /// For these taps of a filter of `[o, c, kh, kw]`.
    pub(super) fn new(filter: [usize; 4], taps: &FilterTaps, order: SummedChannels) -> PackedFilterLayout {
        let [outputs, inputs, height, width] = filter;
        let count = taps.list.len();
        let layout = match order {
            SummedChannels::Inputs => PanelLayout::new(count * inputs, outputs),
            SummedChannels::Outputs => PanelLayout::new(count * outputs, inputs),
            SummedChannels::OutputsAlone => PanelLayout::new(outputs, count * inputs),
        };
        PackedFilterLayout { layout, taps: taps.indices(), window: height * width, inputs, order }
    }

    /// The element of a filter that stands at a depth and column.
    pub(in super::super) fn element(&self, filter: &[f32], depth: usize, column: usize) -> f32 {
        let count = self.taps.len();
        let split = |at: usize, channels: usize| (self.taps[at / channels] as usize, at % channels);
        let (tap, output, input) = match self.order {
            SummedChannels::Inputs => {
                let (tap, input) = split(depth, self.layout.depth / count);
                (tap, column, input)
            }
            SummedChannels::Outputs => {
                let (tap, output) = split(depth, self.layout.depth / count);
                (tap, output, column)
            }
            SummedChannels::OutputsAlone => {
                let (tap, input) = split(column, self.inputs);
                (tap, depth, input)
            }
        };
        filter[(output * self.inputs + input) * self.window + tap]
    }
}
