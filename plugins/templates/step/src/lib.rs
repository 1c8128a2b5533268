//! A step that chooses the threshold of a score: the one with which the most items of a dataset are classified
//! correctly. A template for steps; `Cargo.toml` declares the inputs and outputs.

use saggar_plugin::{BatchOptions, DataType, Dataset, Error, Job, Result, StepInputs, StepOutputs, info, named};

/// Items that are read at once.
const ITEMS_PER_READ: u32 = 4096;

/// Chooses the threshold.
pub fn choose_threshold(_: &Job, inputs: &StepInputs) -> Result<StepOutputs> {
    let table = inputs.dataset("table")?;
    let split = Some(inputs.text("split")?).filter(|split| !split.is_empty());
    let scores = read_numbers(&table, inputs.text("score")?, split)?;
    let labels = read_numbers(&table, inputs.text("label")?, split)?;
    let mut items: Vec<(f64, bool)> =
        scores.into_iter().zip(labels).map(|(score, label)| (score, label != 0.0)).collect();
    items.sort_by(|a, b| a.0.total_cmp(&b.0));

    let candidates = candidates(&items);
    // The first of the best, so that the same data gives the same threshold.
    let best = candidates.iter().rev().max_by_key(|(_, correct)| *correct).ok_or(Error::NoItems)?;
    let share = |correct: usize| correct as f64 / items.len() as f64;
    let mut report = "threshold,accuracy\n".to_owned();
    for (threshold, correct) in &candidates {
        report += &format!("{threshold},{}\n", share(*correct));
    }
    info(&format!("threshold {} classifies {} of {} items", best.0, best.1, items.len()));
    Ok(StepOutputs::new()
        .number("threshold", best.0)
        .number("accuracy", share(best.1))
        .integer("items", items.len() as i64)
        .file("report", report.as_bytes()))
}

/// Returns every distinct score with the number of items that it classifies correctly as a threshold. `items` are sorted
/// by score.
fn candidates(items: &[(f64, bool)]) -> Vec<(f64, usize)> {
    // With the lowest score as the threshold, every item is positive.
    let mut correct = items.iter().filter(|(_, positive)| *positive).count();
    let mut candidates: Vec<(f64, usize)> = Vec::new();
    for (score, positive) in items {
        if candidates.last().is_none_or(|(last, _)| last != score) {
            candidates.push((*score, correct));
        }
        // Above this score, the item is negative.
        if *positive { correct -= 1 } else { correct += 1 }
    }
    candidates
}

/// Reads a field with one number per item.
fn read_numbers(data: &Dataset, field: &str, split: Option<&str>) -> Result<Vec<f64>> {
    let item = data.field(field)?.item;
    if item.shape.iter().product::<u32>() != 1 {
        let what = format!("the field `{field}`");
        return Err(Error::Shape { what, expected: "one number per item", given: item.shape });
    }
    let options =
        BatchOptions { size: ITEMS_PER_READ, shuffle_seed: None, drop_last: false, split: split.map(str::to_owned) };
    let batches = data.batches(&[field.to_owned()], &options)?;
    let mut numbers = Vec::new();
    while let Some(batch) = batches.next_batch()? {
        let bytes = named(&batch, field)?.read()?;
        match item.data_type {
            DataType::Float32 => {
                numbers.extend(bytes.as_chunks().0.iter().map(|it| f64::from(f32::from_le_bytes(*it))))
            }
            DataType::Int32 => numbers.extend(bytes.as_chunks().0.iter().map(|it| f64::from(i32::from_le_bytes(*it)))),
            DataType::Uint8 => numbers.extend(bytes.iter().map(|it| f64::from(*it))),
            _ => {
                let (name, expected) = (field.to_owned(), "a field of float32, int32 or uint8".to_owned());
                return Err(Error::Parameter { name, expected, given: format!("{:?}", item.data_type) });
            }
        }
    }
    Ok(numbers)
}

saggar_plugin::export!(step: choose_threshold);

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn every_distinct_score_is_a_candidate() {
        let items = [(0.1, false), (0.4, true), (0.4, false), (0.8, true)];
        assert_eq!(candidates(&items), [(0.1, 2), (0.4, 3), (0.8, 3)]);
        assert_eq!(candidates(&[]), []);
    }
}
