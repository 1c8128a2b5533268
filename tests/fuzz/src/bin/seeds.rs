//! `seeds DIR`: writes generated graphs as texts, for the targets `verify` and `compile` to start from.

use std::path::PathBuf;

use saggar_tensor::arbitrary::{cases, graph, tangle};
use saggar_tensor::text::print;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_else(|| "corpus".into());
    std::fs::create_dir_all(&dir)?;
    let graphs = (0..300).map(graph).chain((0..300).map(tangle));
    for (number, case) in cases(1).into_iter().chain(graphs).enumerate() {
        std::fs::write(dir.join(format!("{number}.graph")), print(case.builder.graph()))?;
    }
    Ok(())
}
