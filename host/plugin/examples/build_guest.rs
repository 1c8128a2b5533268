//! Builds plugins and prints where the components are:
//! `cargo run -p saggar-plugin --example build_guest -- plugins/lenet`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use saggar_plugin::build::{BuildOptions, build};

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for directory in std::env::args().skip(1) {
        let start = Instant::now();
        match build(Path::new(&directory), &BuildOptions::default()) {
            Ok(built) => {
                let (path, seconds) = (built.component_path.display(), start.elapsed().as_secs_f64());
                println!("{path} {} bytes, {:?}, {seconds:.1} s", built.bytes, built.toolchain);
            }
            Err(error) => {
                eprintln!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
