//! The graph of a pipeline of the project file, as a table, a Mermaid flowchart or an SVG picture.

use std::fmt::Write;

use saggar_project::{PipelinePlan, PipelineStep, StepDependencies};
use serde::Serialize;
use serde_json::Value;

use super::{folders, plan};
use crate::args::{GraphFormat, PipelineGraphArgs};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// A step of the graph as JSON.
#[derive(Serialize)]
struct GraphStep<'a> {
    name: &'a str,
    kind: &'static str,
    level: usize,
    after: Vec<&'a str>,
}

pub(super) fn graph(args: &PipelineGraphArgs, output: CliOutput) -> Result<i32, CliError> {
    let project = ProjectContext::require()?;
    let section = plan::find_pipeline(&project, &args.name)?;
    let mut steps: Vec<PipelineStep> = section.expanded.iter().map(|expanded| expanded.step.clone()).collect();
    folders::replace_by_samples(&mut steps);
    let project = project.manifest.project.name.clone();
    let plan = PipelinePlan { name: args.name.clone(), project, params: section.params.clone(), steps };
    // The file was checked, so its pipelines have no mistakes.
    let dependencies = plan.check().map_err(|mistakes| {
        CliError::invalid(mistakes.first().map_or_else(String::new, |mistake| mistake.message.clone()))
    })?;
    let levels = levels(&dependencies);
    if output.json {
        let step = |at: usize| GraphStep {
            name: &plan.steps[at].name,
            kind: plan.steps[at].kind.name(),
            level: levels[at],
            after: dependencies[at].iter().map(|it| plan.steps[it.step].name.as_str()).collect(),
        };
        output.print_json(&(0..plan.steps.len()).map(step).collect::<Vec<_>>());
        return Ok(0);
    }
    match args.format {
        GraphFormat::Text => print_text(&plan, &dependencies, &levels, output),
        GraphFormat::Mermaid => output.print_text(&mermaid(&plan, &dependencies)),
        GraphFormat::Svg => output.print_text(&svg(&plan, &dependencies, &levels)),
    }
    Ok(0)
}

/// Returns the level of each step: 0 without dependencies, else one more than the highest of them.
fn levels(dependencies: &StepDependencies) -> Vec<usize> {
    let mut levels = vec![0; dependencies.len()];
    // Dependencies can be listed in any order; a path has at most as many edges as there are steps.
    for _ in 0..dependencies.len() {
        for (at, below) in dependencies.iter().enumerate() {
            levels[at] = below.iter().map(|it| levels[it.step] + 1).max().unwrap_or(0);
        }
    }
    levels
}

/// Returns a description of a step: its kind, items and conditions.
fn describe(step: &PipelineStep) -> String {
    let mut text = step.kind.name().to_owned();
    match &step.for_each {
        Some(Value::Array(items)) => write!(text, " for each of {} items", items.len()).unwrap_or_default(),
        Some(Value::String(items)) => write!(text, " for each of {items}").unwrap_or_default(),
        _ => {}
    }
    for condition in &step.when {
        let condition = condition.as_str().map_or_else(|| condition.to_string(), str::to_owned);
        write!(text, " when {condition}").unwrap_or_default();
    }
    text
}

fn print_text(plan: &PipelinePlan, dependencies: &StepDependencies, levels: &[usize], output: CliOutput) {
    let mut order: Vec<usize> = (0..plan.steps.len()).collect();
    order.sort_by_key(|at| levels[*at]);
    let row = |at: &usize| {
        let step = &plan.steps[*at];
        let after: Vec<&str> = dependencies[*at].iter().map(|it| plan.steps[it.step].name.as_str()).collect();
        let arrow = if after.is_empty() { String::new() } else { format!("<- {}", after.join(", ")) };
        vec![format!("{}{}", "  ".repeat(levels[*at]), step.name), describe(step), arrow]
    };
    let rows: Vec<Vec<String>> = order.iter().map(row).collect();
    output.print_table(&["STEP", "KIND", "AFTER"], &rows);
}

/// Returns a flowchart of Mermaid. Nodes are named by their positions, because names of steps can be words of Mermaid.
fn mermaid(plan: &PipelinePlan, dependencies: &StepDependencies) -> String {
    let mut text = String::from("flowchart TD\n");
    for (at, step) in plan.steps.iter().enumerate() {
        // Quotes would end the label, and angle brackets would begin a tag.
        let description = describe(step).replace('<', "#lt;").replace('>', "#gt;");
        let label = format!("{}<br/>{description}", step.name).replace('"', "#quot;");
        writeln!(text, "    s{at}[\"{label}\"]").unwrap_or_default();
    }
    for (at, below) in dependencies.iter().enumerate() {
        for dependency in below {
            writeln!(text, "    s{} --> s{at}", dependency.step).unwrap_or_default();
        }
    }
    text
}

/// Returns a picture: a row of boxes for each level, with lines between them.
fn svg(plan: &PipelinePlan, dependencies: &StepDependencies, levels: &[usize]) -> String {
    const BOX: (usize, usize) = (220, 44);
    const CELL: (usize, usize) = (244, 92);
    const MARGIN: usize = 12;
    let mut used = vec![0; levels.len()];
    let mut place = Vec::with_capacity(levels.len());
    for level in levels {
        place.push((MARGIN + used[*level] * CELL.0, MARGIN + level * CELL.1));
        used[*level] += 1;
    }
    let columns = used.iter().copied().max().unwrap_or(1);
    let rows = levels.iter().max().map_or(1, |level| level + 1);
    let (width, height) = (2 * MARGIN + columns * CELL.0, 2 * MARGIN + rows * CELL.1);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n"
    );
    for (at, below) in dependencies.iter().enumerate() {
        for dependency in below {
            let (from, to) = (place[dependency.step], place[at]);
            let (x1, y1, x2, y2) = (from.0 + BOX.0 / 2, from.1 + BOX.1, to.0 + BOX.0 / 2, to.1);
            writeln!(text, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"#888\"/>")
                .unwrap_or_default();
        }
    }
    for (step, (x, y)) in plan.steps.iter().zip(&place) {
        let (name, detail) = (escape_xml(&step.name), escape_xml(&describe(step)));
        let (width, height) = BOX;
        writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#eef2f7\" stroke=\"#456\"/>\n\
             <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{name}</text>\n<text x=\"{}\" y=\"{}\" fill=\"#456\">{detail}</text>",
            x + 10,
            y + 18,
            x + 10,
            y + 35
        )
        .unwrap_or_default();
    }
    text.push_str("</svg>\n");
    text
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
