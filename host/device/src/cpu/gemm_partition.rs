//! How one large product is cut into tasks: bands of rows by stretches of panels. By its shape alone, and no bit of the
//! result depends on it.

use super::gemm::macro_kernel::PanelRange;
use super::gemm::pack::PanelLayout;

/// Multiply-adds of one task: some 100 microseconds of a core.
pub(super) const TASK_MULTIPLY_ADDS: usize = 8 << 20;
/// More tasks than this give no better balance.
pub(super) const TASKS_MAX: usize = 32;
/// Of what is too little for [`BALANCED_TASKS`] such tasks, those that are still worth a task: some microseconds.
pub(super) const TASK_MULTIPLY_ADDS_MIN: usize = 1 << 17;
/// Tasks that give most of the balance.
const BALANCED_TASKS: usize = 8;

/// How many tasks so many multiply-adds are worth.
pub(super) fn task_count(work: usize) -> usize {
    (work / TASK_MULTIPLY_ADDS).clamp((work / TASK_MULTIPLY_ADDS_MIN).clamp(1, BALANCED_TASKS), TASKS_MAX)
}

/// Rows of the product that are worth a task of their own: several tiles.
const TASK_ROWS_MIN: usize = 48;
/// Rows of tasks are multiples of this where there are enough, which suits every tile.
const TASK_ROWS_STEP: usize = 6;

/// A task: groups of rows, panels, and the rows of these panels.
pub(super) type GemmTask<'a> = (std::ops::Range<usize>, PanelRange, Vec<&'a mut [f32]>);

/// The cut of a product whose rows come in groups of `places` that stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GemmPartition {
    /// Groups in all.
    rows: usize,
    /// How many bands.
    bands: usize,
    /// Groups of which bands have whole numbers, but for the last one.
    step: usize,
    /// Rows of the product in a group.
    places: usize,
    /// Panels of a stretch.
    pub(super) panels: usize,
    layout: PanelLayout,
}

impl GemmPartition {
    /// For `rows` groups of `places` rows, and a second operand of this layout.
    pub(super) fn new(rows: usize, places: usize, layout: PanelLayout) -> GemmPartition {
        let places = places.max(1);
        let (m, n) = (rows * places, layout.columns);
        let work = m.saturating_mul(n).saturating_mul(layout.depth);
        let tasks = task_count(work);
        // Every band of rows reads all panels and every stretch of panels all rows: the cut that reads least.
        let bands = (tasks * m / n.max(1)).isqrt().clamp(1, tasks).min(m.div_ceil(TASK_ROWS_MIN).max(1));
        let step = TASK_ROWS_STEP.div_ceil(places);
        let bands = bands.min(rows.div_ceil(step).max(1));
        let stretches = tasks.div_ceil(bands).clamp(1, layout.panels().max(1));
        GemmPartition { rows, bands, step, places, panels: layout.panels().div_ceil(stretches).max(1), layout }
    }

    /// Whether tasks compute whole rows.
    pub(super) fn covers_whole_rows(&self) -> bool {
        self.panels >= self.layout.panels()
    }

    /// The groups of each band. Bands are as nearly alike as their steps allow.
    pub(super) fn row_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let GemmPartition { rows, bands, step, .. } = *self;
        let first = move |band: usize| (band * rows.div_ceil(step) / bands * step).min(rows);
        (0..bands).map(move |band| first(band)..first(band + 1))
    }

    /// The tasks that compute `out`.
    pub(super) fn tasks<'a>(&self, out: &'a mut [f32]) -> Vec<GemmTask<'a>> {
        let columns = self.layout.columns;
        let width = self.panels * self.layout.panel_columns();
        let (mut tasks, mut rest) = (Vec::new(), out);
        for groups in self.row_ranges() {
            let rows = groups.len() * self.places;
            let (out, later) = rest.split_at_mut(rows * columns);
            rest = later;
            let mut cut: Vec<Vec<&mut [f32]>> =
                (0..columns.div_ceil(width)).map(|_| Vec::with_capacity(rows)).collect();
            for row in out.chunks_exact_mut(columns) {
                for (stretch, part) in cut.iter_mut().zip(row.chunks_mut(width)) {
                    stretch.push(part);
                }
            }
            for (stretch, rows) in cut.into_iter().enumerate() {
                let first = stretch * self.panels;
                let end = (first + self.panels).min(self.layout.panels());
                tasks.push((groups.clone(), PanelRange { first, end }, rows));
            }
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_element_belongs_to_one_gemm_task() {
        for [rows, places, columns, depth] in [
            [1, 1, 1, 1],
            [128, 1, 768, 768],
            [512, 1, 512, 512],
            [56, 56, 64, 576],
            [7, 7, 512, 4608],
            [9, 1, 4000, 1000],
        ] {
            let bands = GemmPartition::new(rows, places, PanelLayout::new(depth, columns));
            let mut out = vec![0.0; rows * places * columns];
            let tasks = bands.tasks(&mut out);
            assert!(tasks.len() <= 2 * TASKS_MAX, "{rows} {places} {columns} {depth}: {} tasks", tasks.len());
            for (_, _, parts) in tasks {
                parts.into_iter().flatten().for_each(|element| *element += 1.0);
            }
            assert!(out.iter().all(|&element| element == 1.0), "{rows} {places} {columns} {depth}");
        }
    }
}
