//! Printer of graphs. Never fails, even for an invalid graph.

use std::fmt::Write;

use super::CONSTANT_TEXT_BYTES_MAX;
use super::attributes::op_attributes;
use super::lexer::quote;
use crate::graph::{Graph, GraphNode, GraphPort};
use crate::op::SourceOp;

/// Returns `graph` as text, one line for each port, constant, node, output and assignment.
pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    for (kind, ports) in [("input", &graph.inputs), ("variable", &graph.variables)] {
        for port in ports {
            push_line(&mut out, format_args!("{kind} {}: {}", quote(&port.name), port.descriptor));
        }
    }
    for (number, bytes) in graph.constants.iter().enumerate() {
        push_line(&mut out, format_args!("constant #{number}: {}", hex_encode(bytes)));
    }
    for (number, node) in graph.nodes.iter().enumerate() {
        print_node(&mut out, graph, number, node);
    }
    for (name, id) in &graph.outputs {
        push_line(&mut out, format_args!("output {} = %{}", quote(name), id.0));
    }
    for &(number, id) in &graph.assignments {
        push_line(&mut out, format_args!("assign {} = %{}", port_name(&graph.variables, number), id.0));
    }
    out
}

fn push_line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}

fn hex_encode(bytes: &[u8]) -> String {
    if bytes.len() > CONSTANT_TEXT_BYTES_MAX {
        return format!("omitted ; {} bytes", bytes.len());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn print_node(out: &mut String, graph: &Graph, number: usize, node: &GraphNode) {
    let label = node.label.as_ref().map_or(String::new(), |label| format!(" {}", quote(label)));
    let mut text = format!("%{number}{label}: {} = {}", node.descriptor, node.op.name());
    match node.op.as_source() {
        Some(SourceOp::Input(port)) => text += &format!(" {}", port_name(&graph.inputs, *port)),
        Some(SourceOp::Variable(port)) => text += &format!(" {}", port_name(&graph.variables, *port)),
        Some(SourceOp::Constant(constant)) => text += &format!(" #{constant}"),
        Some(SourceOp::Fill(_) | SourceOp::Iota { .. } | SourceOp::Random { .. }) | None => {}
    }
    for (position, id) in node.inputs.iter().enumerate() {
        let separator = if position == 0 { " " } else { ", " };
        text += &format!("{separator}%{}", id.0);
    }
    let attributes: Vec<String> =
        op_attributes(&node.op).iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !attributes.is_empty() {
        text += &format!(" {{{}}}", attributes.join(", "));
    }
    push_line(out, format_args!("{text}"));
}

/// Returns the port's name if it is unambiguous, else its number.
fn port_name(ports: &[GraphPort], number: u32) -> String {
    match ports.get(number as usize) {
        Some(port) if ports.iter().position(|other| other.name == port.name) == Some(number as usize) => {
            quote(&port.name)
        }
        _ => format!("#{number}"),
    }
}
