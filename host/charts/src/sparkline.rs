//! A series in one line of text.

/// Blocks from low to high.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws values by step as at most `columns` blocks: each the mean of an equal share of the values, from the lowest to
/// the highest. A share without a finite value is a space. Returns an empty text without finite values.
pub fn sparkline(points: &[(u64, f64)], columns: usize) -> String {
    let columns = columns.clamp(1, points.len().max(1));
    let mut means = vec![(0.0, 0u32); columns];
    for (index, (_, value)) in points.iter().enumerate().filter(|(_, (_, value))| value.is_finite()) {
        let (mean, count) = &mut means[index * columns / points.len()];
        *count += 1;
        *mean += (value - *mean) / f64::from(*count);
    }
    let known = || means.iter().filter(|(_, count)| *count > 0).map(|(mean, _)| *mean);
    let (low, high) = (known().fold(f64::MAX, f64::min), known().fold(f64::MIN, f64::max));
    if known().next().is_none() {
        return String::new();
    }
    let block = |mean: f64| {
        let place = if low < high { (mean / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) } else { 0.5 };
        BLOCKS[((place * 8.0) as usize).min(7)]
    };
    means.iter().map(|(mean, count)| if *count == 0 { ' ' } else { block(*mean) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_drawn_from_its_lowest_to_its_highest_mean() {
        let rising: Vec<(u64, f64)> = (0..80).map(|step| (step, step as f64)).collect();
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[(5, 1.0), (6, f64::NAN), (7, 2.0)], 12), "▁ █");
        assert_eq!(sparkline(&[(5, 1.0)], 12), "▅");
        assert_eq!(sparkline(&[(5, f64::NAN)], 12), "");
        assert_eq!(sparkline(&[], 12), "");
        assert_eq!(sparkline(&[(0, f64::MIN), (u64::MAX, f64::MAX)], 2), "▁█");
    }
}
