//! A short training, from the dataset to the published version.

use saggar_tests::ServerProcess;

use crate::report::BenchReport;
use crate::stage::{BenchFixture, SIDE};

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, _: &mut BenchReport) {
    stage.train_lenet(server);
    let job = server.get("/api/v1/jobs/lenet-1");
    let attempt = &job["attempts"][0];
    let (samples, seconds) = (attempt["samples"].as_f64().unwrap(), attempt["wall_seconds"].as_f64().unwrap());
    let device = attempt["gpu_seconds"].as_f64().unwrap();
    println!("\ntraining, LeNet {SIDE}x{SIDE}, batch 64, whole attempt with validation");
    println!(
        "  {:.0} samples/s ({samples} samples in {seconds:.2} s, {device:.2} s of it on the device)",
        samples / seconds
    );
}
