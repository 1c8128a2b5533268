//! Writing graphs as text. Never fails, whatever the graph refers to.

use std::fmt::Write;

use super::CONSTANT_TEXT_BYTES_MAX;
use super::attributes::attributes;
use super::lexer::quote;
use crate::graph::{Graph, Node, Port};
use crate::op::{Op, Source};

/// `graph` as text, one line for each port, constant, node, output and assignment.
pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    for (kind, ports) in [("input", &graph.inputs), ("variable", &graph.variables)] {
        for port in ports {
            line(&mut out, format_args!("{kind} {}: {}", quote(&port.name), port.descriptor));
        }
    }
    for (number, bytes) in graph.constants.iter().enumerate() {
        line(&mut out, format_args!("constant #{number}: {}", base16(bytes)));
    }
    for (number, node) in graph.nodes.iter().enumerate() {
        print_node(&mut out, graph, number, node);
    }
    for (name, id) in &graph.outputs {
        line(&mut out, format_args!("output {} = %{}", quote(name), id.0));
    }
    for &(number, id) in &graph.assignments {
        line(&mut out, format_args!("assign {} = %{}", port_name(&graph.variables, number), id.0));
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}

fn base16(bytes: &[u8]) -> String {
    if bytes.len() > CONSTANT_TEXT_BYTES_MAX {
        return format!("omitted ; {} bytes", bytes.len());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn print_node(out: &mut String, graph: &Graph, number: usize, node: &Node) {
    let label = node.label.as_ref().map_or(String::new(), |label| format!(" {}", quote(label)));
    let mut text = format!("%{number}{label}: {} = {}", node.descriptor, node.op.name());
    match &node.op {
        Op::Source(Source::Input(port)) => text += &format!(" {}", port_name(&graph.inputs, *port)),
        Op::Source(Source::Variable(port)) => text += &format!(" {}", port_name(&graph.variables, *port)),
        Op::Source(Source::Constant(constant)) => text += &format!(" #{constant}"),
        Op::Source(Source::Fill(_) | Source::Iota { .. } | Source::Random { .. })
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => {}
    }
    for (position, id) in node.inputs.iter().enumerate() {
        let separator = if position == 0 { " " } else { ", " };
        text += &format!("{separator}%{}", id.0);
    }
    let attributes: Vec<String> = attributes(&node.op).iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !attributes.is_empty() {
        text += &format!(" {{{}}}", attributes.join(", "));
    }
    line(out, format_args!("{text}"));
}

/// The port's name where that finds it again, else its number.
fn port_name(ports: &[Port], number: u32) -> String {
    match ports.get(number as usize) {
        Some(port) if ports.iter().position(|other| other.name == port.name) == Some(number as usize) => {
            quote(&port.name)
        }
        _ => format!("#{number}"),
    }
}
