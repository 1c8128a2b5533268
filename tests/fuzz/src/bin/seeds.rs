//! `seeds DIR`: writes generated graphs as texts, as initial inputs of the targets `verify` and `compile`.

use std::path::PathBuf;

use saggar_testgen::{high_fan_in_graph, primitive_cases, random_graph};
use saggar_tensor::text::print;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_else(|| "corpus".into());
    std::fs::create_dir_all(&dir)?;
    let graphs = (0..300).map(random_graph).chain((0..300).map(high_fan_in_graph));
    for (number, case) in primitive_cases(1).into_iter().chain(graphs).enumerate() {
        std::fs::write(dir.join(format!("{number}.graph")), print(case.builder.graph()))?;
    }
    Ok(())
}
