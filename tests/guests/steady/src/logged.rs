//! Images, tables and histograms that the training logs, good ones and bad ones.

use saggar_plugin::{ColumnValues, DataType, Descriptor, Histogram, ImageLayout, Job, Result, Tensor};

/// The height and width of the images.
const SIDE: u32 = 16;

/// What is logged, by the parameters `items`, `flood` and `bad_item`.
pub(crate) struct ItemLog {
    items: bool,
    flood: u64,
    bad_item: Option<String>,
}

impl ItemLog {
    pub(crate) fn from_params(job: &Job) -> Result<Self> {
        Ok(Self {
            items: job.param("items", false)?,
            flood: job.param("flood", 0)?,
            bad_item: job.params().optional("bad_item")?,
        })
    }

    /// Logs the items of a step.
    pub(crate) fn log(&self, job: &Job, step: u64) -> Result<()> {
        if self.items {
            log_items(job, step)?;
        }
        for number in 0..self.flood {
            job.log_histogram(number, "flood", &Histogram::new(vec![0.0, 1.0], vec![step]))?;
        }
        match &self.bad_item {
            Some(kind) => log_bad_item(job, step, kind),
            None => Ok(()),
        }
    }
}

/// Logs an RGB image and a grey one, a table with the number of the attempt, and a histogram that widens.
fn log_items(job: &Job, step: u64) -> Result<()> {
    let pixels: Vec<u8> =
        (0..SIDE * SIDE).flat_map(|at| [(at % SIDE * 16) as u8, (at / SIDE * 16) as u8, step as u8]).collect();
    job.log_image(step, "pictures/gradient", &image(DataType::Uint8, &[SIDE, SIDE, 3], &pixels)?, ImageLayout::Hwc)?;
    let grey: Vec<f32> = (0..SIDE * SIDE).map(|at| (at as f32 / 255.0 + step as f32 / 64.0).fract()).collect();
    job.log_image(step, "pictures/grey", &Tensor::from_f32(&[1, SIDE, SIDE], &grey)?, ImageLayout::Chw)?;
    let classes = ["cat", "dog", "<b>bird</b>"].map(str::to_owned);
    let recall: Vec<f64> = [0.5, 0.25, f64::NAN].iter().map(|value| value + step as f64 / 1000.0).collect();
    let columns = [
        ("class", ColumnValues::Texts(classes.to_vec())),
        ("recall", ColumnValues::Numbers(recall)),
        ("attempt", ColumnValues::Integers(vec![i64::from(job.attempt()); 3])),
        ("rare", ColumnValues::Booleans(vec![false, false, true])),
    ];
    job.log_table(step, "classes", columns)?;
    let spread = 1.0 + step as f32 / 10.0;
    let values: Vec<f32> = (0..2000).map(|at| bell((at as f32 + 0.5) / 2000.0) * spread).collect();
    job.log_histogram(step, "weights/all", &Histogram::of(&values, 24))
}

/// A bell-shaped distribution from its quantile: the logistic one.
fn bell(quantile: f32) -> f32 {
    (quantile / (1.0 - quantile)).ln()
}

/// Logs an item that the host refuses.
fn log_bad_item(job: &Job, step: u64, kind: &str) -> Result<()> {
    let row = || ColumnValues::Integers(vec![1]);
    match kind {
        "huge" => {
            let pixels = vec![0; 4096 * 4096];
            job.log_image(step, "huge", &image(DataType::Uint8, &[4096, 4096, 1], &pixels)?, ImageLayout::Hwc)
        }
        "nan" => {
            let pixels = Tensor::from_f32(&[1, 2, 1], &[0.5, f32::NAN])?;
            job.log_image(step, "nan", &pixels, ImageLayout::Hwc)
        }
        "layout" => {
            let pixels = Tensor::from_f32(&[3, 2, 2], &[0.5; 12])?;
            job.log_image(step, "layout", &pixels, ImageLayout::Hwc)
        }
        "bins" => job.log_histogram(step, "bins", &Histogram::new(vec![0.0], Vec::new())),
        "edges" => job.log_histogram(step, "edges", &Histogram::new(vec![1.0, f64::NAN], vec![1])),
        "ragged" => job.log_table(step, "ragged", [("a", row()), ("b", ColumnValues::Texts(Vec::new()))]),
        "path" => job.log_table(step, "../../secret", [("a", row())]),
        other => job.log_table(step, other, []),
    }
}

fn image(data_type: DataType, shape: &[u32], pixels: &[u8]) -> Result<Tensor> {
    Tensor::from_bytes(&Descriptor { data_type, shape: shape.to_vec() }, pixels)
}
