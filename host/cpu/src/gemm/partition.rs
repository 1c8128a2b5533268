//! Partition of one large product into tasks: bands of rows by ranges of panels. It depends on the shape alone, and the
//! results do not depend on it.

use super::macro_kernel::PanelRange;
use super::pack::PanelLayout;

/// Multiply-adds of one task, some 100 microseconds of a core.
pub(crate) const TASK_MULTIPLY_ADDS: usize = 8 << 20;
/// Maximum number of tasks. More give no better balance.
pub(crate) const TASKS_MAX: usize = 32;
/// Minimum number of multiply-adds of a task, some microseconds of a core, if the product is too small for
/// [`BALANCED_TASKS`] full tasks.
pub(crate) const TASK_MULTIPLY_ADDS_MIN: usize = 1 << 17;
/// Tasks that give most of the balance.
const BALANCED_TASKS: usize = 8;

/// Returns the number of tasks for `work` multiply-adds.
pub(crate) fn task_count(work: usize) -> usize {
    (work / TASK_MULTIPLY_ADDS).clamp((work / TASK_MULTIPLY_ADDS_MIN).clamp(1, BALANCED_TASKS), TASKS_MAX)
}

/// Minimum number of rows of the product per task: several tiles.
const TASK_ROWS_MIN: usize = 48;
/// Unit of a task's rows if there are enough of them. A multiple of it suits every tile.
const TASK_ROWS_STEP: usize = 6;

/// A task: a range of row groups, a range of panels, and the result's rows within these panels.
pub(crate) type GemmTask<'a> = (std::ops::Range<usize>, PanelRange, Vec<&'a mut [f32]>);

/// The partition of a product whose rows come in groups of `places` that stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmPartition {
    /// Number of groups.
    rows: usize,
    /// Number of bands.
    bands: usize,
    /// Unit of a band's groups. All bands but the last are multiples of it.
    step: usize,
    /// Rows of the product per group.
    places: usize,
    /// Panels per task.
    pub(crate) panels: usize,
    layout: PanelLayout,
}

impl GemmPartition {
    /// Returns the partition for `rows` groups of `places` rows and a second operand of this layout.
    pub(crate) fn new(rows: usize, places: usize, layout: PanelLayout) -> GemmPartition {
        let places = places.max(1);
        let (m, n) = (rows * places, layout.columns);
        let work = m.saturating_mul(n).saturating_mul(layout.depth);
        let tasks = task_count(work);
        // Every band of rows reads all panels, and every range of panels reads all rows. Choose the split that reads
        // least.
        let bands = (tasks * m / n.max(1)).isqrt().clamp(1, tasks).min(m.div_ceil(TASK_ROWS_MIN).max(1));
        let step = TASK_ROWS_STEP.div_ceil(places);
        let bands = bands.min(rows.div_ceil(step).max(1));
        let stretches = tasks.div_ceil(bands).clamp(1, layout.panels().max(1));
        GemmPartition { rows, bands, step, places, panels: layout.panels().div_ceil(stretches).max(1), layout }
    }

    /// Returns whether tasks compute whole rows.
    pub(crate) fn covers_whole_rows(&self) -> bool {
        self.panels >= self.layout.panels()
    }

    /// Returns the groups of each band. Bands are as equal as their unit allows.
    pub(crate) fn row_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let GemmPartition { rows, bands, step, .. } = *self;
        let first = move |band: usize| (band * rows.div_ceil(step) / bands * step).min(rows);
        (0..bands).map(move |band| first(band)..first(band + 1))
    }

    /// Returns the tasks that compute `out`.
    pub(crate) fn tasks<'a>(&self, out: &'a mut [f32]) -> Vec<GemmTask<'a>> {
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
