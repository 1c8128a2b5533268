//! Which values a kernel's body reads and writes.

use crate::expr::{Expr, Instruction};
use crate::program::{Body, End, Epilogue, Layout, Store, ValueId};

impl Expr {
    /// Values loaded, in order of first use, each once.
    pub fn loads(&self) -> Vec<ValueId> {
        let mut found = Vec::new();
        for (instruction, _) in &self.instructions {
            if let Some(value) = loaded(instruction)
                && !found.contains(&value)
            {
                found.push(value);
            }
        }
        found
    }

    fn map_values(&mut self, change: &mut dyn FnMut(ValueId) -> ValueId) {
        for (instruction, _) in &mut self.instructions {
            match instruction {
                Instruction::Load { value, .. } => *value = change(*value),
                Instruction::Random { key, .. } => *key = change(*key),
                Instruction::Immediate(_)
                | Instruction::Index(_)
                | Instruction::Accumulated
                | Instruction::Product(_)
                | Instruction::Unary(..)
                | Instruction::Binary(..)
                | Instruction::Select(..) => {}
            }
        }
    }
}

fn loaded(instruction: &Instruction) -> Option<ValueId> {
    match instruction {
        Instruction::Load { value, .. } => Some(*value),
        Instruction::Random { key, .. } => Some(*key),
        Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => None,
    }
}

/// Operands and single results that a body names outside its expressions.
struct Named<'a> {
    reads: Vec<&'a mut ValueId>,
    writes: Vec<&'a mut ValueId>,
    exprs: Vec<&'a mut Expr>,
    stores: Option<&'a mut Vec<Store>>,
}

impl<'a> Named<'a> {
    fn with_epilogue(reads: Vec<&'a mut ValueId>, epilogue: &'a mut Epilogue) -> Named<'a> {
        Named { reads, writes: Vec::new(), exprs: vec![&mut epilogue.expr], stores: Some(&mut epilogue.stores) }
    }

    fn plain(reads: Vec<&'a mut ValueId>, write: &'a mut ValueId) -> Named<'a> {
        Named { reads, writes: vec![write], exprs: Vec::new(), stores: None }
    }
}

impl Body {
    /// Values read, each once, in order of first use.
    pub fn reads(&self) -> Vec<ValueId> {
        let mut copy = self.clone();
        let named = copy.named();
        let mut found: Vec<ValueId> = Vec::new();
        let operands = named.reads.iter().map(|value| **value);
        for value in operands.chain(named.exprs.iter().flat_map(|expr| expr.loads())) {
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found
    }

    /// Values written, each once, in order of their stores.
    pub fn writes(&self) -> Vec<ValueId> {
        match self {
            Body::Map { stores, .. }
            | Body::Fold { epilogue: Epilogue { stores, .. }, .. }
            | Body::MatMul { epilogue: Epilogue { stores, .. }, .. }
            | Body::Conv2d { epilogue: Epilogue { stores, .. }, .. } => {
                stores.iter().map(|store| store.value).collect()
            }
            Body::Chain { softmax, epilogue, .. } => {
                let rows = softmax.iter().flat_map(|softmax| [softmax.largest, softmax.sum]).flatten();
                epilogue.stores.iter().map(|store| store.value).chain(rows).collect()
            }
            Body::ArgFold { output, .. }
            | Body::Conv2dInputGrad { output, .. }
            | Body::Conv2dFilterGrad { output, .. }
            | Body::Pool2d { output, .. }
            | Body::MaxPool2dGrad { output, .. }
            | Body::SumPool2dGrad { output, .. }
            | Body::Gather { output, .. }
            | Body::Scatter { output, .. } => vec![*output],
        }
    }

    /// The order of the axes of what it reads and writes; the usual one where it has no windows.
    pub fn layout(&self) -> Layout {
        match self {
            Body::Conv2d { layout, .. }
            | Body::Conv2dInputGrad { layout, .. }
            | Body::Conv2dFilterGrad { layout, .. }
            | Body::Pool2d { layout, .. }
            | Body::MaxPool2dGrad { layout, .. }
            | Body::SumPool2dGrad { layout, .. } => *layout,
            Body::Map { .. }
            | Body::Fold { .. }
            | Body::ArgFold { .. }
            | Body::MatMul { .. }
            | Body::Chain { .. }
            | Body::Gather { .. }
            | Body::Scatter { .. } => Layout::ChannelsFirst,
        }
    }

    /// How many distinct values the kernel touches.
    pub fn values(&self) -> usize {
        let reads = self.reads();
        reads.len() + self.writes().iter().filter(|value| !reads.contains(value)).count()
    }

    /// The kernel's expressions.
    pub(crate) fn exprs(&self) -> Vec<&Expr> {
        match self {
            Body::Map { expr, .. } => vec![expr],
            Body::Fold { prologue, epilogue, .. } => vec![prologue, &epilogue.expr],
            Body::MatMul { epilogue, .. } | Body::Conv2d { epilogue, .. } => vec![&epilogue.expr],
            Body::Chain { link, epilogue, .. } => vec![link, &epilogue.expr],
            Body::ArgFold { .. }
            | Body::Conv2dInputGrad { .. }
            | Body::Conv2dFilterGrad { .. }
            | Body::Pool2d { .. }
            | Body::MaxPool2dGrad { .. }
            | Body::SumPool2dGrad { .. }
            | Body::Gather { .. }
            | Body::Scatter { .. } => Vec::new(),
        }
    }

    /// Instructions of the longest of its expressions.
    pub(crate) fn longest_expr(&self) -> usize {
        self.exprs().iter().map(|expr| expr.instructions.len()).max().unwrap_or(0)
    }

    /// Instructions of all its expressions.
    pub(crate) fn instructions(&self) -> usize {
        self.exprs().iter().map(|expr| expr.instructions.len()).sum()
    }

    /// Replaces every value: operands through `read`, results through `write`.
    pub(crate) fn map_values(
        &mut self,
        read: &mut dyn FnMut(ValueId) -> ValueId,
        write: &mut dyn FnMut(ValueId) -> ValueId,
    ) {
        let named = self.named();
        for value in named.reads {
            *value = read(*value);
        }
        for expr in named.exprs {
            expr.map_values(read);
        }
        for value in named.writes {
            *value = write(*value);
        }
        for store in named.stores.into_iter().flatten() {
            store.value = write(store.value);
        }
    }

    fn named(&mut self) -> Named<'_> {
        match self {
            Body::Map { expr, stores, .. } => {
                Named { reads: Vec::new(), writes: Vec::new(), exprs: vec![expr], stores: Some(stores) }
            }
            Body::Fold { prologue, epilogue, .. } => Named {
                reads: Vec::new(),
                writes: Vec::new(),
                exprs: vec![prologue, &mut epilogue.expr],
                stores: Some(&mut epilogue.stores),
            },
            Body::MatMul { a, b, epilogue, .. } => Named::with_epilogue(vec![a, b], epilogue),
            Body::Chain { products, link, softmax, end, epilogue, .. } => {
                let mut reads: Vec<_> =
                    products.iter_mut().flat_map(|product| [&mut product.a.value, &mut product.b.value]).collect();
                if let End::Product { factor, .. } = end {
                    reads.push(&mut factor.value);
                }
                let rows = softmax.iter_mut().flat_map(|softmax| [&mut softmax.largest, &mut softmax.sum]);
                Named {
                    reads,
                    writes: rows.flatten().collect(),
                    exprs: vec![link, &mut epilogue.expr],
                    stores: Some(&mut epilogue.stores),
                }
            }
            Body::Conv2d { input, filter, epilogue, .. } => Named::with_epilogue(vec![input, filter], epilogue),
            Body::Conv2dInputGrad { gradient, filter, output, .. } => Named::plain(vec![gradient, filter], output),
            Body::Conv2dFilterGrad { input, gradient, output, .. }
            | Body::MaxPool2dGrad { input, gradient, output, .. } => Named::plain(vec![input, gradient], output),
            Body::ArgFold { input, output, .. } | Body::Pool2d { input, output, .. } => {
                Named::plain(vec![input], output)
            }
            Body::SumPool2dGrad { gradient, output, .. } => Named::plain(vec![gradient], output),
            Body::Gather { input, indices, output, .. } => Named::plain(vec![input, indices], output),
            Body::Scatter { base, indices, updates, output, .. } => {
                Named::plain(base.iter_mut().chain([indices, updates]).collect(), output)
            }
        }
    }
}
