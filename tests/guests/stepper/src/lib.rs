//! A step with outputs of most types, which returns invalid outputs if its input `mode` says so.

use saggar_plugin::{Job, Result, StepInputs, StepOutputs};

/// Bytes of the file of the mode `large-file`.
const LARGE_BYTES: usize = 64 << 20;

/// Runs the step. Modes: `well`; `missing`, `undeclared`, `wrong-type`, `twice`, `out-of-range`, `not-a-number`,
/// `long-text`, `no-such-rows`, `many-outputs`, `large-file`, `endless` and `error`.
///
/// # Errors
/// Returns the error that the mode `error` asks for.
pub fn run(job: &Job, inputs: &StepInputs) -> Result<StepOutputs> {
    let mode = inputs.text("mode")?;
    let (count, share, flag) = (inputs.integer("count")?, inputs.number("share")?, inputs.boolean("flag")?);
    let mut table = "x,label\n".to_owned();
    for row in 0..count {
        table += &format!("{}.5,{}\n", row, row % 2);
    }
    job.write_output("table/rows.csv", table.as_bytes())?;
    let outputs = StepOutputs::new().integer("count", count + 1).boolean("flag", !flag).text("note", "all is well");
    let outputs = outputs.file("report", b"a report\n").dataset("rows", "table");
    let well = outputs.clone().number("share", share / 2.0);
    Ok(match mode {
        "well" => well,
        "missing" => outputs,
        "undeclared" => well.number("median", 0.5),
        "wrong-type" => outputs.text("share", "0.5"),
        "twice" => well.number("share", 0.5),
        "out-of-range" => outputs.number("share", 2.0),
        "not-a-number" => outputs.number("share", f64::NAN),
        "long-text" => well.text("note", &"x".repeat(1 << 20)),
        "no-such-rows" => well.dataset("rows", "elsewhere"),
        "many-outputs" => (0..100_000).fold(well, |all, at| all.integer(&format!("o{at}"), at)),
        "large-file" => well.file("report", &vec![7; LARGE_BYTES]),
        "endless" => endless(well),
        _ => return Err(saggar_plugin::Error::NoItems),
    })
}

/// Returns files until the memory of the instance is exhausted.
fn endless(mut outputs: StepOutputs) -> StepOutputs {
    loop {
        outputs = outputs.file("report", &vec![7; LARGE_BYTES]);
    }
}

saggar_plugin::export!(step: run);
