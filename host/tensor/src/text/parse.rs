//! Parser of graphs: one statement per line.

use std::sync::Arc;

use super::attributes::{AttributeValue, OpAttributes, parse_op};
use super::lexer::{TextToken, tokenize};
use super::{TextError, TextFault};
use crate::graph::{Graph, GraphNode, GraphPort, NodeId};
use crate::op::Scalar;
use crate::{DType, Descriptor, Shape};

/// Parses the graph that `text` describes. It is not verified.
///
/// # Errors
/// Returns an error for the first line that is not a valid statement, with the expected token.
pub fn parse(text: &str) -> Result<Graph, TextError> {
    let mut graph = Graph::default();
    for (index, line) in text.lines().enumerate() {
        let located = |fault| TextError { line: index + 1, fault };
        let mut line = LineParser { tokens: tokenize(line).map_err(located)?.into_iter() };
        parse_statement(&mut graph, &mut line).map_err(located)?;
        if let Some(token) = line.tokens.next() {
            return Err(located(unexpected_token("the end of the line", Some(token))));
        }
    }
    Ok(graph)
}

fn parse_statement(graph: &mut Graph, line: &mut LineParser) -> Result<(), TextFault> {
    let Some(first) = line.tokens.next() else {
        return Ok(());
    };
    let TextToken::Word(word) = &first else {
        return Err(unexpected_token("a statement", Some(first)));
    };
    match word.as_str() {
        "input" => graph.inputs.push(line.port()?),
        "variable" => graph.variables.push(line.port()?),
        "constant" => {
            let number = line.reference('#')?;
            check_number(graph.constants.len(), number)?;
            line.mark(':')?;
            graph.constants.push(line.bytes()?);
        }
        "output" => {
            let name = line.quoted()?;
            line.mark('=')?;
            graph.outputs.push((name, NodeId(line.reference('%')?)));
        }
        "assign" => {
            let number = line.port_number("variable", &graph.variables)?;
            line.mark('=')?;
            graph.assignments.push((number, NodeId(line.reference('%')?)));
        }
        word => {
            let number =
                parse_reference(word, '%').ok_or_else(|| unexpected_token("a statement", Some(first.clone())))?;
            check_number(graph.nodes.len(), number)?;
            let node = line.node(graph)?;
            graph.nodes.push(node);
        }
    }
    Ok(())
}

fn check_number(expected: usize, found: u32) -> Result<(), TextFault> {
    if found as usize == expected { Ok(()) } else { Err(TextFault::OutOfOrder { expected, found }) }
}

/// Returns the number in `word` after `sigil`.
fn parse_reference(word: &str, sigil: char) -> Option<u32> {
    word.strip_prefix(sigil)?.parse().ok()
}

fn unexpected_token(expected: &'static str, found: Option<TextToken>) -> TextFault {
    let found = match found {
        Some(TextToken::Word(text) | TextToken::Quoted(text)) => text,
        Some(TextToken::Mark(mark)) => mark.to_string(),
        None => String::new(),
    };
    TextFault::Expected { expected, found }
}

/// The unparsed rest of a line.
struct LineParser {
    tokens: std::vec::IntoIter<TextToken>,
}

impl LineParser {
    fn peek_mark(&self, mark: char) -> bool {
        self.tokens.as_slice().first() == Some(&TextToken::Mark(mark))
    }

    /// Consumes `mark` if it is next.
    fn take_mark(&mut self, mark: char) -> bool {
        let found = self.peek_mark(mark);
        if found {
            self.tokens.next();
        }
        found
    }

    fn mark(&mut self, mark: char) -> Result<(), TextFault> {
        if self.take_mark(mark) {
            return Ok(());
        }
        let expected = match mark {
            ':' => "a colon",
            '=' => "an equals sign",
            '[' => "an opening bracket",
            _ => "a comma or a closing mark",
        };
        Err(unexpected_token(expected, self.tokens.next()))
    }

    fn word(&mut self, expected: &'static str) -> Result<String, TextFault> {
        match self.tokens.next() {
            Some(TextToken::Word(word)) => Ok(word),
            other => Err(unexpected_token(expected, other)),
        }
    }

    fn quoted(&mut self) -> Result<String, TextFault> {
        match self.tokens.next() {
            Some(TextToken::Quoted(name)) => Ok(name),
            other => Err(unexpected_token("a quoted name", other)),
        }
    }

    fn reference(&mut self, sigil: char) -> Result<u32, TextFault> {
        let expected = if sigil == '%' { "a node such as %0" } else { "a number such as #0" };
        let word = self.word(expected)?;
        parse_reference(&word, sigil).ok_or(TextFault::Expected { expected, found: word })
    }

    /// Parses `"name": descriptor`.
    fn port(&mut self) -> Result<GraphPort, TextFault> {
        let name = self.quoted()?;
        self.mark(':')?;
        Ok(GraphPort { name, descriptor: self.descriptor()? })
    }

    /// Parses a port by name or number.
    fn port_number(&mut self, kind: &'static str, ports: &[GraphPort]) -> Result<u32, TextFault> {
        if !matches!(self.tokens.as_slice().first(), Some(TextToken::Quoted(_))) {
            return self.reference('#');
        }
        let name = self.quoted()?;
        match ports.iter().position(|port| port.name == name) {
            Some(number) => Ok(number as u32),
            None => Err(TextFault::UnknownPort { kind, name }),
        }
    }

    /// Parses pairs of base-16 digits, possibly none.
    fn bytes(&mut self) -> Result<Arc<[u8]>, TextFault> {
        let Some(token) = self.tokens.next() else {
            return Ok(Arc::from([]));
        };
        let TextToken::Word(digits) = &token else {
            return Err(unexpected_token("bytes in base 16", Some(token)));
        };
        if digits == "omitted" {
            return Err(TextFault::Omitted);
        }
        let nibble = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8);
        let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
            _ => None,
        });
        pairs
            .collect::<Option<Vec<u8>>>()
            .map(Arc::from)
            .ok_or_else(|| unexpected_token("bytes in base 16", Some(token)))
    }

    /// Parses `float32[2, 3]`.
    fn descriptor(&mut self) -> Result<Descriptor, TextFault> {
        let word = self.word("a data type")?;
        let dtype = DType::from_name(&word).ok_or(TextFault::Expected { expected: "a data type", found: word })?;
        Ok(Descriptor::new(dtype, Shape::new(self.list()?)?))
    }

    /// Parses `[2, 3]`.
    fn list(&mut self) -> Result<Vec<usize>, TextFault> {
        self.mark('[')?;
        let mut values = Vec::new();
        while !self.take_mark(']') {
            if !values.is_empty() {
                self.mark(',')?;
            }
            let word = self.word("a size")?;
            values.push(word.parse().map_err(|_| TextFault::Expected { expected: "a size", found: word })?);
        }
        Ok(values)
    }

    /// Parses the rest of a node after its number: label, descriptor, operator, port or operands, attributes.
    fn node(&mut self, graph: &Graph) -> Result<GraphNode, TextFault> {
        let label = if self.peek_mark(':') { None } else { Some(Arc::from(self.quoted()?)) };
        self.mark(':')?;
        let descriptor = self.descriptor()?;
        self.mark('=')?;
        let name = self.word("an operator")?;
        let port = match name.as_str() {
            "input" => Some(self.port_number("input", &graph.inputs)?),
            "variable" => Some(self.port_number("variable", &graph.variables)?),
            "constant" => Some(self.reference('#')?),
            _ => None,
        };
        let mut inputs = Vec::new();
        while !self.tokens.as_slice().is_empty() && !self.peek_mark('{') {
            if !inputs.is_empty() {
                self.mark(',')?;
            }
            inputs.push(NodeId(self.reference('%')?));
        }
        let op = parse_op(&name, self.attributes()?, port)?;
        Ok(GraphNode { op, inputs, descriptor, label })
    }

    /// Parses `{name=value, ..}`, or nothing.
    fn attributes(&mut self) -> Result<OpAttributes, TextFault> {
        let mut attributes = OpAttributes::new();
        if !self.take_mark('{') {
            return Ok(attributes);
        }
        while !self.take_mark('}') {
            if !attributes.is_empty() {
                self.mark(',')?;
            }
            let name = self.word("an attribute")?;
            self.mark('=')?;
            attributes.push((name, self.value()?));
        }
        Ok(attributes)
    }

    fn value(&mut self) -> Result<AttributeValue, TextFault> {
        if self.peek_mark('[') {
            return Ok(AttributeValue::List(self.list()?));
        }
        let word = self.word("a value")?;
        if let Ok(value) = word.parse() {
            return Ok(AttributeValue::Number(Scalar::Int(value)));
        }
        Ok(match word.parse() {
            Ok(value) => AttributeValue::Number(Scalar::Float(value)),
            Err(_) => AttributeValue::Word(word),
        })
    }
}
