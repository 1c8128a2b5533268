//! The comparison with other frameworks in the documentation matches the committed table, computed as `make bench-peers` does.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::root;

/// The page with the figures.
const PAGE: &str = "host/docs/internals/benchmarks.md";

/// A row of the page: how it begins, and the workloads and peers of the table whose ratios it shows, in order.
type FigureRow = (&'static str, &'static [(&'static str, &'static str)]);

const ONNX: &str = "ONNX Runtime 1.32.0";
const OPTIMIZED: &str = "ONNX Runtime 1.32.0, its optimizer for transformers";
const LAST: &str = "PyTorch 2.15.0, torch.compile, channels last";
const EAGER_LAST: &str = "PyTorch 2.15.0, eager, channels last";
const EAGER: &str = "PyTorch 2.15.0, eager";

const ROWS: [FigureRow; 8] = [
    ("products of", &[("matmul-512", "gemm 0.19.0"), ("matmul-1024", "gemm 0.19.0"), ("matmul-2048", "gemm 0.19.0")]),
    ("LeNet, batches of 1,", &[("infer-lenet-b1", ONNX), ("infer-lenet-b64", ONNX)]),
    ("ResNet-18,", &[("infer-resnet18-b1", ONNX), ("infer-resnet18-b32", ONNX)]),
    ("BERT-base,", &[("infer-bert-b1", OPTIMIZED), ("infer-bert-b32", OPTIMIZED)]),
    ("a training step of LeNet,", &[("train-lenet-b64", LAST), ("train-lenet-b128", LAST)]),
    ("the same against the fastest", &[("train-lenet-b64", EAGER_LAST), ("train-lenet-b128", EAGER_LAST)]),
    ("a training step of a small", &[("train-seq2seq", "PyTorch 2.15.0, torch.compile")]),
    ("memory of a training step", &[("memory-lenet", EAGER), ("memory-seq2seq", EAGER)]),
];

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the cells of a table's rows.
fn table_rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    text.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn documented_figures_match_the_benchmark_table() {
    let (page, table) = (text(PAGE), text("host/devices/BENCHMARKS.md"));
    let section = page.split("The CPU device beside its peers").nth(1).unwrap();
    let (documented, measured) = (table_rows(section), table_rows(&table));
    for (start, works) in ROWS {
        let row = documented.iter().find(|row| row[0].starts_with(start)).unwrap_or_else(|| panic!("no row `{start}`"));
        let ratio = |(work, peer): &(&str, &str)| -> f64 {
            let row = measured.iter().find(|row| row[0] == *work && row[2] == *peer);
            let row = row.unwrap_or_else(|| panic!("BENCHMARKS.md has no {work} beside {peer}"));
            row[4].split(' ').next().unwrap().parse().unwrap()
        };
        let found: Vec<f64> = row[1].split(", ").map(|figure| figure.parse().unwrap()).collect();
        assert_eq!(found.len(), works.len(), "{start}");
        for (found, work) in found.iter().zip(works) {
            // The page shows two of three digits, and a tie can be rounded either way.
            assert!((found - ratio(work)).abs() < 0.0051, "{PAGE}, `{start}`: {found} is not {}", ratio(work));
        }
        // A row without a goal says so, and a missed goal is shown too.
        assert!(!row[2].is_empty() || row[0].ends_with("not judged"), "{PAGE}, `{start}` has no goal");
    }
}

#[test]
fn the_benchmark_harness_runs_as_many_rounds_as_the_table_says() {
    let source = text("host/devices/benches/peers/arguments.rs");
    let value = |name: &str| {
        let rest = source.split(&format!("const {name}: ")).nth(1).unwrap();
        rest.split([';', '=']).nth(1).unwrap().trim().to_owned()
    };
    let turns = format!("{} rounds of {} s each", value("DEFAULT_ROUNDS"), value("DEFAULT_TURN_SECONDS"));
    for path in [PAGE, "host/devices/BENCHMARKS.md"] {
        assert!(text(path).contains(&turns), "{path} is of other turns than `make bench-peers` takes: {turns}");
    }
}
