//! `seeds DIR`: writes generated graphs as texts, as initial inputs of the targets `verify` and `compile`, into
//! `DIR/verify`, and generated files as those of the targets of datasets into `DIR/TARGET`.

#[path = "../../bodies/dataset_seeds.rs"]
mod dataset_seeds;

use std::path::PathBuf;

use saggar_testgen::{high_fan_in_graph, primitive_cases, random_graph};
use saggar_tensor::text::print;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_else(|| "corpus".into());
    let graph_dir = dir.join("verify");
    std::fs::create_dir_all(&graph_dir)?;
    let graphs = (0..300).map(random_graph).chain((0..300).map(high_fan_in_graph));
    for (number, case) in primitive_cases(1).into_iter().chain(graphs).enumerate() {
        std::fs::write(graph_dir.join(format!("{number}.graph")), print(case.builder.graph()))?;
    }
    for (target, seeds) in dataset_seeds::all() {
        let target_dir = dir.join(target);
        std::fs::create_dir_all(&target_dir)?;
        for (number, seed) in seeds.into_iter().enumerate() {
            std::fs::write(target_dir.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
