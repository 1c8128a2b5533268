//! The table of epochs in the log.

/// Decimal places, and the minimum width of a column.
const VALUE_DIGITS: usize = 5;
const COLUMN_WIDTH_MIN: usize = 9;

/// The last columns. The host fills them, because a plugin has no clock and does not store checkpoints.
const HOST_COLUMN_HEADS: &str = "  elapsed_time    checkpoint";
const HOST_COLUMN_PLACEHOLDERS: &str = "     {seconds}  {checkpoint}";
const _: () = assert!(HOST_COLUMN_HEADS.len() == HOST_COLUMN_PLACEHOLDERS.len());

/// A table with the columns `epoch`, the means over the epoch, the means over the held-out items, the seconds since the
/// start of the training, and the step of the newest checkpoint.
pub(super) struct EpochTable {
    names: Vec<String>,
}

impl EpochTable {
    pub(super) fn new(training: &[(String, f64)], held_out: &[(String, f64)]) -> Self {
        let training = training.iter().map(|(name, _)| name.clone());
        let held_out = held_out.iter().map(|(name, _)| format!("validation/{name}"));
        Self { names: training.chain(held_out).collect() }
    }

    /// Returns the header: `epoch       loss  validation/loss  elapsed_time    checkpoint`
    pub(super) fn head(&self) -> String {
        let columns = self.names.iter().map(|name| format!("  {name:>COLUMN_WIDTH_MIN$}"));
        format!("epoch{}{HOST_COLUMN_HEADS}", columns.collect::<String>())
    }

    /// Returns a row, which the host completes to: `    1    0.22513          0.10738         18.51          @600`
    pub(super) fn row(&self, epoch: u64, training: &[(String, f64)], held_out: &[(String, f64)]) -> String {
        let values = training.iter().chain(held_out).map(|(_, value)| value);
        let columns = self.names.iter().zip(values).map(|(name, value)| {
            let width = name.len().max(COLUMN_WIDTH_MIN);
            format!("  {value:>width$.VALUE_DIGITS$}")
        });
        format!("{epoch:>5}{}{HOST_COLUMN_PLACEHOLDERS}", columns.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_table_rows_align_with_their_heads() {
        let means = |loss, accuracy| vec![("loss".to_owned(), loss), ("accuracy".to_owned(), accuracy)];
        let (training, held_out) = (means(0.225_134, 0.933_267), means(0.107_383, 0.9664));
        let table = EpochTable::new(&training, &held_out);
        assert_eq!(
            table.head(),
            "epoch       loss   accuracy  validation/loss  validation/accuracy  elapsed_time    checkpoint"
        );
        assert_eq!(
            table.row(1, &training, &held_out),
            "    1    0.22513    0.93327          0.10738              0.96640     {seconds}  {checkpoint}"
        );
    }
}
