//! Weighted means of named values.

/// Means of named values, weighted by items or steps.
#[derive(Debug, Default)]
pub(super) struct WeightedMeans {
    weight: u64,
    sums: Vec<(String, f64)>,
}

impl WeightedMeans {
    /// Adds values that are means over `weight` items or steps.
    pub(super) fn add(&mut self, weight: u64, means: Vec<(String, f64)>) {
        self.weight += weight;
        for (name, mean) in means {
            let sum = mean * weight as f64;
            match self.sums.iter_mut().find(|(other, _)| *other == name) {
                Some((_, total)) => *total += sum,
                None => self.sums.push((name, sum)),
            }
        }
    }

    /// Returns the total number of items or steps.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn finish(self) -> Vec<(String, f64)> {
        let weight = self.weight as f64;
        self.sums.into_iter().map(|(name, sum)| (name, sum / weight)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_counts_once() {
        let mut means = WeightedMeans::default();
        means.add(64, vec![("loss".to_owned(), 1.0)]);
        means.add(16, vec![("loss".to_owned(), 6.0)]);
        assert_eq!(means.weight(), 80);
        assert_eq!(means.finish(), [("loss".to_owned(), 2.0)]);
    }
}
