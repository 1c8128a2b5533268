//! `saggar audit`: who changed what.

use saggar_clock::{Clock, SystemClock};
use saggar_rest::audit::{AuditLineDocument, AuditListDocument};

use crate::args::AuditArgs;
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::CliError;
use crate::output::CliOutput;

/// Lines of one request.
const PAGE_LINES_MAX: u32 = 1000;

pub(crate) fn audit(args: &AuditArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let lines = read_lines(args, client)?;
    if output.json {
        output.print_json(&lines);
    } else {
        let rows: Vec<Vec<String>> = lines.iter().rev().map(line_row).collect();
        output.print_table(&["AT", "SERVER", "WHO", "ACTION", "SUBJECT", "RESULT", "DETAIL"], &rows);
    }
    Ok(())
}

/// Returns lines, newest first.
fn read_lines(args: &AuditArgs, client: &ApiClient) -> Result<Vec<AuditLineDocument>, CliError> {
    let since = args.since.map(|since| {
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        SystemClock.now_ms().saturating_sub(ms).to_string()
    });
    let filters = [
        ("who", args.who.clone()),
        ("action", args.action.clone()),
        ("subject", args.subject.clone()),
        ("result", args.result.clone()),
        ("server", args.server.clone()),
        ("since", since),
    ];
    let filter: String = filters
        .iter()
        .filter_map(|(name, value)| Some(format!("&{name}={}", encode_path_segment(value.as_ref()?))))
        .collect();
    let (mut lines, mut before) = (Vec::new(), String::new());
    while lines.len() < args.lines as usize {
        let limit = (args.lines as usize - lines.len()).min(PAGE_LINES_MAX as usize);
        let page: AuditListDocument = client.get(&format!("/api/v1/audit?limit={limit}{filter}{before}"))?;
        lines.extend(page.lines);
        let Some(next) = page.next else { break };
        before = format!("&before={next}");
    }
    Ok(lines)
}

fn line_row(line: &AuditLineDocument) -> Vec<String> {
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    vec![
        line.at.clone(),
        or_none(&line.server),
        line.who.clone(),
        line.action.clone(),
        or_none(&line.subject),
        line.result.clone(),
        or_none(&line.detail),
    ]
}
