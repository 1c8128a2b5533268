//! The fixture of all sections: a state directory with trained and published models, and pictures to predict.
//!
//! `lenet` is trained on MNIST if `MNIST` names its directory, otherwise on the project's digits, enlarged to the same
//! size. Its accuracy does not matter for a measurement of speed.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use saggar_tests::{ServerProcess, guest, lenet, root};
use serde_json::json;

use crate::peers::PeerEnvironment;

/// Height and width of a picture in pixels.
pub(crate) const SIDE: usize = 28;
/// Number of pictures for which outputs are compared.
const PICTURES: usize = 64;

/// A state directory and the inputs for its models.
#[derive(Debug)]
pub(crate) struct BenchFixture {
    home: tempfile::TempDir,
    data: PathBuf,
    pictures: Vec<Vec<u8>>,
}

impl BenchFixture {
    pub(crate) fn new() -> BenchFixture {
        let home = tempfile::tempdir().unwrap();
        let data = match std::env::var_os("MNIST") {
            Some(mnist) => PathBuf::from(mnist),
            None => write_enlarged_digits(home.path()),
        };
        let images = gunzip(&data.join("t10k-images-idx3-ubyte.gz"));
        let pictures = images[16..].chunks_exact(SIDE * SIDE).take(PICTURES).map(<[u8]>::to_vec).collect();
        BenchFixture { home, data, pictures }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts a server on the state directory.
    pub(crate) fn start_server(&self) -> ServerProcess {
        ServerProcess::start(self.home())
    }

    /// Publishes `lenet`, by training for one epoch, unless it exists.
    pub(crate) fn train_lenet(&self, server: &ServerProcess) {
        if self.is_published("lenet") {
            return server.wait_for_version("lenet", 1);
        }
        server.saggar_ok(&["data", "push", self.data.to_str().unwrap(), "--name", "pictures"]);
        let plugin = lenet();
        let run =
            ["run", plugin.to_str().unwrap(), "--project", "lenet", "--data", "pictures", "--device", "cpu", "--wait"];
        server.saggar_ok(&[&run[..], &["--", "batch=64", "model=lenet", "epochs=1"]].concat());
        server.wait_for_version("lenet", 1);
    }

    /// Publishes version `version` of a model of linear layers, unless it exists.
    pub(crate) fn publish_linear(&self, server: &ServerProcess, model: &str, version: u64, depth: u32, width: u32) {
        if !self.home().join(format!("models/{model}/{version}/manifest.json")).is_file() {
            let (plugin, seed) = (guest("matmul"), version.to_string());
            let named = [("model", model.to_owned()), ("depth", depth.to_string()), ("width", width.to_string())];
            let named: Vec<String> = named.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut run = vec!["run", plugin.to_str().unwrap(), "--project", model, "--device", "cpu", "--seed", &seed];
            run.extend(["--wait", "--"]);
            run.extend(named.iter().map(String::as_str));
            server.saggar_ok(&run);
        }
        server.wait_for_version(model, version);
    }

    /// Exports `lenet` as an ONNX file.
    ///
    /// # Errors
    /// Returns Python's error.
    pub(crate) fn export_onnx(&self, environment: &PeerEnvironment) -> Result<PathBuf, String> {
        let file = self.home().join("lenet.onnx");
        environment.export_onnx(&self.home().join("models/lenet/1"), &file).map(|()| file)
    }

    fn is_published(&self, model: &str) -> bool {
        self.home().join("models").join(model).join("1/manifest.json").is_file()
    }

    /// Returns the pictures, in row-major order.
    pub(crate) fn pictures(&self) -> &[Vec<u8>] {
        &self.pictures
    }
}

/// Returns a picture as the body of a request to `lenet`.
pub(crate) fn picture_json(pixels: &[u8]) -> String {
    json!({ "image": pixels.chunks(SIDE).collect::<Vec<_>>() }).to_string()
}

/// Returns the input of models of linear layers: 784 numbers with five digits, which are 6.2 KB of JSON.
pub(crate) fn vector() -> Vec<f64> {
    // Knuth's multiplier spreads the numbers, which are the same in every run.
    (1..=784_u64).map(|at| (10_000 + at * 2_654_435_761 % 90_000) as f64 / 100_000.0).collect()
}

/// Returns [`vector`] as the body of a request.
pub(crate) fn vector_json() -> String {
    let numbers: Vec<String> = vector().iter().map(|number| format!("{number:.5}")).collect();
    format!("{{\"x\":[{}]}}", numbers.join(","))
}

/// Writes the project's digits, 8 by 8 with values 0 to 16, as pictures of MNIST's size and format.
fn write_enlarged_digits(home: &Path) -> PathBuf {
    let dir = home.join("enlarged");
    std::fs::create_dir(&dir).unwrap();
    let csv = gunzip(&root().join("examples/digits/digits.csv.gz"));
    let rows: Vec<Vec<u8>> = String::from_utf8(csv).unwrap().lines().filter_map(parse_digit_row).collect();
    let (train, held_out) = rows.split_at(rows.len() * 5 / 6);
    for (rows, images, labels) in [
        (train, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        (held_out, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
    ] {
        let count = (rows.len() as u32).to_be_bytes();
        let side = (SIDE as u32).to_be_bytes();
        let mut pixels = [&[0, 0, 8, 3][..], &count, &side, &side].concat();
        rows.iter().for_each(|row| pixels.extend(enlarge_digit(&row[..64])));
        let mut classes = [&[0, 0, 8, 1][..], &count].concat();
        classes.extend(rows.iter().map(|row| row[64]));
        gzip(&dir.join(images), &pixels);
        gzip(&dir.join(labels), &classes);
    }
    dir
}

/// Parses 64 pixels and the class. Returns `None` for a heading.
fn parse_digit_row(line: &str) -> Option<Vec<u8>> {
    let row: Vec<u8> = line.split(',').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
    (row.len() == 65).then_some(row)
}

fn enlarge_digit(pixels: &[u8]) -> impl Iterator<Item = u8> {
    let source = |at: usize| at * 8 / SIDE;
    let pixel = move |at: usize| pixels[source(at / SIDE) * 8 + source(at % SIDE)];
    (0..SIDE * SIDE).map(move |at| pixel(at).saturating_mul(15))
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn gzip(path: &Path, bytes: &[u8]) {
    let mut encoder = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap();
}
