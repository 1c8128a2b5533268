//! Builds plugins and prints the paths of the components:
//! `cargo run -p saggar-plugin --example build_guest -- plugins/lenet`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use saggar_plugin::build::{BuildOptions, build_all};

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for directory in std::env::args().skip(1) {
        let start = Instant::now();
        match build_all(Path::new(&directory), &BuildOptions::default()) {
            Ok(plugins) => {
                for built in plugins {
                    println!("{} {} bytes, {:?}", built.component_path.display(), built.bytes, built.toolchain);
                }
                println!("{:.1} s", start.elapsed().as_secs_f64());
            }
            Err(error) => {
                eprintln!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
