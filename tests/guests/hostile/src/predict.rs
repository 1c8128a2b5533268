//! A predictor that returns `y` = `x`, or misbehaves.

use saggar_plugin::bindings::logging::{Level, log};
use saggar_plugin::{
    DataType, Error, NamedTensor, Params, Port, Predictor, Result, Signature, Tensor, Variables, descriptor, emit,
    emit_tensor,
};

use crate::damage;

/// The behaviours of a load besides [`DAMAGES`](crate::DAMAGES): well, with or without batches; an error; a signature
/// that is invalid or has a million outputs; or a streamed piece during the load.
pub const LOADS: [&str; 7] =
    ["well", "no-batch-sizes", "error", "falling-batch-sizes", "huge-signature", "million-outputs", "emit"];
/// The behaviours of a prediction besides [`DAMAGES`](crate::DAMAGES). `well` behaves. `trap-when-dropped` behaves
/// until the model is dropped. `hoard` keeps memory if the input begins with a number other than 0. `fragile` traps if
/// it begins with a number below 0. `error` and `long-error` return an error, the latter of a megabyte. The others
/// return outputs that contradict the signature, far too many outputs, or names of a megabyte. `emit-*` streams pieces
/// that the host must refuse: of an unknown output, of another type, of half a number, for an unknown item, too large,
/// or a million of them. With the prefix `late-`, a behaviour starts when the input begins with a number below 0, so
/// that such a model loads.
pub const PREDICTIONS: [&str; 21] = [
    "well",
    "trap-when-dropped",
    "hoard",
    "fragile",
    "error",
    "wrong-shape",
    "wrong-type",
    "wrong-batch",
    "missing",
    "twice",
    "million-outputs",
    "many-outputs",
    "long-names",
    "long-error",
    "nan",
    "emit-unknown",
    "emit-type",
    "emit-half",
    "emit-item",
    "emit-large",
    "emit-million",
];

const SIZE: u32 = 4;

/// A model that behaves as its configuration states.
#[derive(Debug)]
pub struct HostilePredictor {
    load: String,
    predict: String,
}

impl Drop for HostilePredictor {
    fn drop(&mut self) {
        if self.predict == "trap-when-dropped" {
            log(Level::Error, "the destructor of a model ran");
            damage::trap();
        }
    }
}

impl Predictor for HostilePredictor {
    fn load(_: Variables, config: Params) -> Result<Self> {
        let load = config.get("load", LOADS[0].to_owned())?;
        let predict = config.get("predict", PREDICTIONS[0].to_owned())?;
        if load == "error" {
            // The parameter does not exist, so this returns an error as a plugin would.
            config.require::<String>("something that is not there")?;
        }
        if load == "emit" {
            emit("y", 0, &[0; 4])?;
        }
        if !LOADS.contains(&load.as_str()) {
            damage::run(&load)?;
        }
        Ok(Self { load, predict })
    }

    fn signature(&self) -> Signature {
        let size = if self.load == "huge-signature" { u32::MAX } else { SIZE };
        Signature {
            inputs: vec![Port::new("x", DataType::Float32, [size])],
            outputs: match self.load.as_str() {
                "million-outputs" => {
                    (0..1_000_000).map(|n| Port::new(&format!("y{n}"), DataType::Float32, [1])).collect()
                }
                _ => vec![Port::new("y", DataType::Float32, [size])],
            },
            batch_sizes: match self.load.as_str() {
                "no-batch-sizes" => Vec::new(),
                "falling-batch-sizes" => vec![4, 2, 1],
                _ => vec![1, 2, 4],
            },
            routes: Vec::new(),
        }
    }

    fn predict(&self, mut inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let first = inputs[0].tensor.read_f32()?.first().copied().unwrap_or(0.0);
        let late = match self.predict.as_str() {
            "fragile" | "trap-when-dropped" => Some("trap"),
            other => other.strip_prefix("late-"),
        };
        match late {
            Some(late) if first < 0.0 => return broken_answer(late, inputs),
            None if self.predict != "well" && self.predict != "hoard" => return broken_answer(&self.predict, inputs),
            _ => {}
        }
        if self.predict == "hoard" && first != 0.0 {
            // 64 MB that are only freed when this instance ends.
            for _ in 0..64 {
                std::mem::forget(zeros(&[1 << 18])?);
            }
        }
        for input in &mut inputs {
            input.name = "y".to_owned();
        }
        Ok(inputs)
    }
}

fn zeros(shape: &[u32]) -> Result<Tensor> {
    Tensor::from_f32(shape, &vec![0.0; shape.iter().product::<u32>() as usize])
}

/// Returns an invalid answer, or misbehaves otherwise and returns the input.
fn broken_answer(behaviour: &str, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
    let batch = inputs.first().and_then(|x| x.tensor.descriptor().shape.first().copied()).unwrap_or(1);
    let named = |name: String, tensor: Result<Tensor>| tensor.map(|tensor| NamedTensor { name, tensor });
    let y = |tensor: Result<Tensor>| Ok(vec![named("y".to_owned(), tensor)?]);
    let many = |count: usize| (0..count).map(|n| named(format!("y{n}"), zeros(&[1]))).collect();
    match behaviour {
        "error" => y(Tensor::from_f32(&[2], &[0.0])),
        "wrong-shape" => y(zeros(&[batch, SIZE + 1])),
        "wrong-type" => {
            y(Tensor::from_bytes(&descriptor(DataType::Int8, [batch, SIZE]), &vec![0; (batch * SIZE) as usize]))
        }
        "wrong-batch" => y(zeros(&[batch + 1, SIZE])),
        "missing" => Ok(Vec::new()),
        "twice" => (0..2).map(|_| named("y".to_owned(), zeros(&[batch, SIZE]))).collect(),
        "million-outputs" => many(1_000_000),
        "many-outputs" => many(40_000),
        "long-names" => (0..2).map(|_| named("y".repeat(1 << 20), zeros(&[batch, SIZE]))).collect(),
        "long-error" => Err(Error::NoSuch { what: "answer", name: "y".repeat(1 << 20), known: Vec::new() }),
        "nan" => y(Tensor::from_f32(&[batch, SIZE], &vec![f32::NAN; (batch * SIZE) as usize])),
        other => {
            match other.strip_prefix("emit-") {
                Some(piece) => send_refused_piece(piece, batch)?,
                None => damage::run(other)?,
            }
            Ok(inputs)
        }
    }
}

/// Streams a piece that the host must refuse.
fn send_refused_piece(piece: &str, batch: u32) -> Result<()> {
    match piece {
        "unknown" => emit("x", 0, &[0; 4]),
        "type" => emit_tensor("y", 0, &Tensor::from_bytes(&descriptor(DataType::Int8, [4]), &[0; 4])?),
        "half" => emit("y", 0, &[0; 6]),
        "item" => emit("y", batch, &[0; 4]),
        "large" => emit("y", 0, &[0; (16 << 10) + 4]),
        _ => (0..1_000_000).try_for_each(|_| emit("y", 0, &[0; 4])),
    }
}
