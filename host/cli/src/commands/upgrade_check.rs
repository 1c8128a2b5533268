//! `saggar upgrade-check`: whether this program can open a state directory, and what it would change in it.

use saggar_store::state_formats::{FormatVerdict, StateFormat, read_state_formats};
use serde::Serialize;

use crate::args::UpgradeCheckArgs;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// A part of the state directory as JSON.
#[derive(Serialize)]
struct CheckedPart {
    part: &'static str,
    /// The format versions, with the number of files of each.
    found: Vec<(u64, u64)>,
    reads: [u64; 2],
    verdict: &'static str,
    problem: String,
}

pub(crate) fn upgrade_check(args: &UpgradeCheckArgs, output: CliOutput) -> Result<(), CliError> {
    if !args.home.is_dir() {
        let message = format!("there is no state directory {}", args.home.display());
        return Err(CliError::new(exit::NOT_FOUND, "no_home", message)
            .with_hint("name it with --home or SAGGAR_HOME; `saggar doctor` lists those of your servers"));
    }
    let formats =
        read_state_formats(&args.home).map_err(|error| CliError::new(exit::UNEXPECTED, "home", error.to_string()))?;
    print_formats(&formats, output);
    let worst = formats.iter().max_by_key(|it| it.verdict);
    let version = env!("CARGO_PKG_VERSION");
    let home = args.home.display();
    match worst {
        Some(it) if it.verdict == FormatVerdict::TooNew => {
            let message = format!("saggar {version} cannot open {home}: a newer version wrote its {}", it.part);
            Err(CliError::new(exit::CONFLICT, "too_new", message)
                .with_hint("use that version, or restore a backup of before its first start"))
        }
        Some(it) if it.verdict == FormatVerdict::Unreadable => {
            let message = format!("{home}: {} cannot be read: {}", it.part, it.problem);
            Err(CliError::new(exit::CONFLICT, "unreadable", message)
                .with_hint("restore a backup: `saggar restore FILE`"))
        }
        Some(it) if it.verdict == FormatVerdict::Migrated => {
            output.print_note(&format!(
                "saggar {version} opens {home} and migrates its {} at the first start of a server. Older versions \
                 cannot open it after that: make a backup first (`saggar backup FILE --home {home}`).",
                it.part
            ));
            Ok(())
        }
        _ => {
            output.print_note(&format!("saggar {version} opens {home} and changes nothing in its formats."));
            Ok(())
        }
    }
}

fn print_formats(formats: &[StateFormat], output: CliOutput) {
    if output.json {
        let part = |it: &StateFormat| CheckedPart {
            part: it.part,
            found: it.found.iter().map(|(format, count)| (*format, *count)).collect(),
            reads: [*it.readable.start(), *it.readable.end()],
            verdict: verdict_name(it.verdict),
            problem: it.problem.clone(),
        };
        output.print_json(&formats.iter().map(part).collect::<Vec<_>>());
        return;
    }
    let row = |it: &StateFormat| {
        let found: Vec<String> = it.found.iter().map(|(format, count)| format!("{format} ({count})")).collect();
        let found = if found.is_empty() { "-".to_owned() } else { found.join(", ") };
        let reads = match it.readable.start() == it.readable.end() {
            true => it.readable.end().to_string(),
            false => format!("{} to {}", it.readable.start(), it.readable.end()),
        };
        vec![it.part.to_owned(), found, reads, verdict_name(it.verdict).to_owned(), it.problem.clone()]
    };
    let rows: Vec<Vec<String>> = formats.iter().map(row).collect();
    output.print_table(&["PART", "FORMAT (FILES)", "THIS VERSION READS", "RESULT", "PROBLEM"], &rows);
}

fn verdict_name(verdict: FormatVerdict) -> &'static str {
    match verdict {
        FormatVerdict::Readable => "readable",
        FormatVerdict::Migrated => "migrated",
        FormatVerdict::Unreadable => "unreadable",
        FormatVerdict::TooNew => "too new",
    }
}
