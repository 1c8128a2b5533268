//! The classifier's prediction for an image.

use saggar_plugin::{DataType, Graph, Result, Tensor, descriptor, named};

use crate::network::Lenet;

/// The probabilities of all classes.
#[derive(Debug, PartialEq)]
pub(crate) struct ClassProbabilities(Vec<f32>);

impl ClassProbabilities {
    /// Predicts the class probabilities of an image with these bytes.
    pub(crate) fn predict(classifier: &Lenet, pixels: &[u8]) -> Result<Self> {
        let graph = Graph::new();
        let shape = [&[1], classifier.config().image_shape().as_slice()].concat();
        let one = descriptor(DataType::Uint8, shape);
        let probabilities = classifier.logits(&graph.input("image", &one)?)?.softmax(1)?;
        let built = graph.build([("probabilities", &probabilities)])?;
        let outputs = built.dispatch([("image", &Tensor::from_bytes(&one, pixels)?)])?;
        Ok(Self(named(&outputs, "probabilities")?.read_f32()?))
    }

    /// Formats the likeliest `count` classes. Of equal probabilities, the lower class comes first.
    pub(crate) fn format_top(&self, count: usize) -> String {
        let mut classes: Vec<(usize, f32)> = self.0.iter().copied().enumerate().collect();
        classes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let parts: Vec<String> = classes.iter().take(count).map(|(class, p)| format!("{class} ({p:.6})")).collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_classes_come_first_and_ties_keep_their_order() {
        let answer = ClassProbabilities(vec![0.1, 0.35, 0.2, 0.35]);
        assert_eq!(answer.format_top(3), "1 (0.350000), 3 (0.350000), 2 (0.200000)");
    }
}
