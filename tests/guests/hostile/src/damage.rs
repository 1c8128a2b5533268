//! The misbehaviours that training, loading and predicting share.

use std::hint::black_box;

use saggar_plugin::bindings::logging::{Level, log};
use saggar_plugin::{DataType, Error, Graph, Operand, Result, Tensor, Variables, descriptor};

use crate::slow;

/// The names of the misbehaviours.
pub const DAMAGES: [&str; 19] = [
    "loop",
    "trap",
    "drop",
    "panic",
    "recurse",
    "memory",
    "handles",
    "operands",
    "variables",
    "graph",
    "shapes",
    "enormous",
    "rank",
    "log",
    "strings",
    "gigabyte",
    "choice",
    "slow-graphs",
    "slow-dispatches",
];

/// Misbehaves. Returns only if the host refuses a call, with the host's error.
///
/// # Errors
/// Returns the host's error; `NoSuch` if `damage` is not in [`DAMAGES`].
pub(crate) fn run(damage: &str) -> Result<()> {
    match damage {
        "loop" => spin(),
        "trap" => trap(),
        "drop" => drop(TrapOnDrop),
        "panic" => panic!("a guest that panics on purpose"),
        "recurse" => {
            black_box(recurse(black_box(1)));
        }
        "memory" => exhaust_memory(),
        "handles" => return exhaust_tensor_handles(),
        "operands" => return exhaust_operand_handles(),
        "variables" => return exhaust_variables(),
        "graph" => return graph_of_a_million_nodes(),
        "shapes" => return build_overflowing_shapes(),
        "enormous" => return build_enormous_outputs(),
        "rank" => return build_excessive_ranks(),
        "log" => loop {
            log(Level::Info, "a useless line");
        },
        "strings" => return pass_huge_strings(16 << 20),
        "gigabyte" => return pass_huge_strings(1 << 30),
        "choice" => return differentiate_through_choice(),
        "slow-graphs" => return slow::compile_large_graphs(),
        "slow-dispatches" => return slow::run_long_dispatches(),
        other => {
            let known = DAMAGES.map(str::to_owned).to_vec();
            return Err(Error::NoSuch { what: "misbehaviour", name: other.to_owned(), known });
        }
    }
    Ok(())
}

/// Loops forever without calling the host.
fn spin() {
    let mut n = 0_u64;
    while black_box(n) < u64::MAX {
        n = n.wrapping_add(1) & 0xffff;
    }
}

/// A value that traps when it is dropped.
struct TrapOnDrop;

impl Drop for TrapOnDrop {
    fn drop(&mut self) {
        trap();
    }
}

/// Executes the instruction that always traps.
pub(crate) fn trap() {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
}

/// Overflows the stack.
#[expect(unconditional_recursion, reason = "its purpose")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(depth + 1).wrapping_add(frame[(depth % 64) as usize])
}

/// Grows the memory until the allocator fails, writing to all of it.
fn exhaust_memory() {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    loop {
        blocks.push(black_box(vec![1; 1 << 20]));
    }
}

/// Creates tensors and keeps their handles.
fn exhaust_tensor_handles() -> Result<()> {
    let mut handles = Vec::new();
    loop {
        handles.push(Tensor::from_f32(&[1], &[0.0])?);
    }
}

/// Creates operands of graphs that are never compiled and keeps their handles.
fn exhaust_operand_handles() -> Result<()> {
    let mut handles: Vec<Operand> = Vec::new();
    loop {
        handles.push(Graph::new().scalar(DataType::Float32, 1.0)?);
    }
}

/// Creates variables without end.
fn exhaust_variables() -> Result<()> {
    let variables = Variables::new(0);
    for n in 0_u64.. {
        variables.training(&format!("v{n}"), descriptor(DataType::Float32, [1024]))?;
    }
    Ok(())
}

/// Adds a million nodes to a graph. Dropping the operands frees their handles, so that the graph's limit is reached
/// first.
fn graph_of_a_million_nodes() -> Result<()> {
    let graph = Graph::new();
    let mut operand = graph.input("x", &descriptor(DataType::Float32, [1]))?;
    for _ in 0..1_000_000 {
        operand = operand.neg()?;
    }
    graph.build([("y", &operand)]).map(|_| ())
}

/// Builds a graph with outputs of 4 TiB, each as large as a tensor can be.
fn build_enormous_outputs() -> Result<()> {
    let graph = Graph::new();
    let one = graph.input("one", &descriptor(DataType::Float32, [1]))?;
    let mut outputs = Vec::new();
    for at in 0..512 {
        outputs.push((format!("y{at}"), one.expand(&[(1 << 31) - 1])?));
    }
    graph.build(outputs.iter().map(|(name, output)| (name.as_str(), output))).map(|_| ())
}

/// Requests shapes whose size overflows, each through another function. The host must refuse all of them.
fn build_overflowing_shapes() -> Result<()> {
    let graph = Graph::new();
    let float = |shape: &[u32]| descriptor(DataType::Float32, shape);
    let one = graph.scalar(DataType::Float32, 1.0)?;
    let column = graph.input("column", &float(&[1 << 20, 1]))?;
    let row = graph.input("row", &float(&[1, 1 << 20]))?;
    let attempts = [
        ("input", graph.input("huge", &float(&[u32::MAX, u32::MAX]))),
        ("overflow", graph.input("overflow", &float(&[1 << 16, 1 << 16, 1 << 16, 1 << 16]))),
        ("fill", graph.fill(&float(&[u32::MAX]), 0.0)),
        ("expand", one.expand(&[u32::MAX, 3])),
        ("outer", column.add(&row)),
        ("pad", row.pad(&[0, u32::MAX], &[0, u32::MAX], saggar_plugin::PaddingMode::Constant(0.0))),
        ("slice", row.slice(&[u32::MAX, u32::MAX], &[1, 2])),
        ("reshape", row.reshape(&[1 << 31, 1 << 31])),
        ("one-hot", row.cast(DataType::Int32).and_then(|row| row.one_hot(u32::MAX, DataType::Float32))),
        ("constant", graph.constant(&float(&[u32::MAX, 4]), &[0; 16])),
    ];
    first_refusal(attempts.map(|(name, attempt)| (name, attempt.err())))
}

/// Differentiates through an argmax, which has no gradient.
fn differentiate_through_choice() -> Result<()> {
    let graph = Graph::new();
    let scores = graph.input("scores", &descriptor(DataType::Float32, [2, 3]))?;
    let guess = scores.arg_max(1, false)?.label("guess");
    let loss = guess.cast(DataType::Float32)?.reduce_sum(&[], false)?;
    graph.gradients(&loss, &[&scores]).map(|_| ())
}

/// Requests tensors of a hundred dimensions. The host must refuse all of them.
fn build_excessive_ranks() -> Result<()> {
    let graph = Graph::new();
    let one = graph.scalar(DataType::Float32, 1.0)?;
    let deep = vec![1; 100];
    let deep_tensor = Tensor::from_bytes(&descriptor(DataType::Float32, deep.clone()), &[0; 4]);
    first_refusal([
        ("input", graph.input("deep", &descriptor(DataType::Float32, deep.clone())).err()),
        ("reshape", one.reshape(&deep).err()),
        ("expand", one.expand(&deep).err()),
        ("tensor", deep_tensor.err()),
    ])
}

/// Passes strings of `bytes` bytes to every function that takes one.
fn pass_huge_strings(bytes: usize) -> Result<()> {
    let long = "s".repeat(bytes);
    log(Level::Info, &long);
    let graph = Graph::new();
    let labelled = graph.scalar(DataType::Float32, 1.0)?.label(&long);
    first_refusal([
        ("input", graph.input(&long, &descriptor(DataType::Float32, [1])).err()),
        ("variable", Variables::new(0).training(&long, descriptor(DataType::Float32, [1])).err()),
        ("output", graph.build([(long.as_str(), &labelled)]).err()),
    ])
}

/// Returns the first refusal. Panics, and so traps, if the host accepted one of the attempts.
fn first_refusal<const N: usize>(attempts: [(&str, Option<Error>); N]) -> Result<()> {
    let mut first = None;
    for (name, refusal) in attempts {
        let refusal = refusal.unwrap_or_else(|| panic!("the host accepted what it must refuse: {name}"));
        first.get_or_insert(refusal);
    }
    first.map_or(Ok(()), Err)
}
