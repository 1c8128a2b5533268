//! The values that a kernel's body reads and writes.

use crate::program::expr::{Instruction, ScalarExpr};
use crate::program::{ChannelLayout, Epilogue, FusedConsumer, KernelBody, ResultStore, ValueId};
use crate::target::CompileTarget;

impl ScalarExpr {
    /// Returns the loaded values, in order of first use, each once.
    pub fn loaded_values(&self) -> Vec<ValueId> {
        let mut found = Vec::new();
        for (instruction, _) in &self.instructions {
            if let Some(value) = loaded_value(instruction)
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

fn loaded_value(instruction: &Instruction) -> Option<ValueId> {
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
struct BodyOperands<'a> {
    reads: Vec<&'a mut ValueId>,
    writes: Vec<&'a mut ValueId>,
    exprs: Vec<&'a mut ScalarExpr>,
    stores: Option<&'a mut Vec<ResultStore>>,
}

impl<'a> BodyOperands<'a> {
    fn with_epilogue(reads: Vec<&'a mut ValueId>, epilogue: &'a mut Epilogue) -> BodyOperands<'a> {
        BodyOperands { reads, writes: Vec::new(), exprs: vec![&mut epilogue.expr], stores: Some(&mut epilogue.stores) }
    }

    fn without_exprs(reads: Vec<&'a mut ValueId>, write: &'a mut ValueId) -> BodyOperands<'a> {
        BodyOperands { reads, writes: vec![write], exprs: Vec::new(), stores: None }
    }
}

impl KernelBody {
    /// Returns the values read, each once, in order of first use.
    pub fn read_values(&self) -> Vec<ValueId> {
        let mut copy = self.clone();
        let named = copy.operands();
        let mut found: Vec<ValueId> = Vec::new();
        let operands = named.reads.iter().map(|value| **value);
        for value in operands.chain(named.exprs.iter().flat_map(|expr| expr.loaded_values())) {
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found
    }

    /// Returns the values written, each once, in order of their stores.
    pub fn written_values(&self) -> Vec<ValueId> {
        match self {
            KernelBody::Map { stores, .. }
            | KernelBody::Fold { epilogue: Epilogue { stores, .. }, .. }
            | KernelBody::MatMul { epilogue: Epilogue { stores, .. }, .. }
            | KernelBody::Conv2d { epilogue: Epilogue { stores, .. }, .. } => {
                stores.iter().map(|store| store.value).collect()
            }
            KernelBody::Chain { softmax, epilogue, .. } => {
                let rows = softmax.iter().flat_map(|softmax| [softmax.largest, softmax.sum]).flatten();
                epilogue.stores.iter().map(|store| store.value).chain(rows).collect()
            }
            KernelBody::ArgFold { output, .. }
            | KernelBody::Conv2dInputGrad { output, .. }
            | KernelBody::Conv2dFilterGrad { output, .. }
            | KernelBody::Pool2d { output, .. }
            | KernelBody::MaxPool2dGrad { output, .. }
            | KernelBody::SumPool2dGrad { output, .. }
            | KernelBody::Gather { output, .. }
            | KernelBody::Scatter { output, .. } => vec![*output],
        }
    }

    /// Returns the axis order of the kernel's operands and results; channels first for a kernel without windows.
    pub fn layout(&self) -> ChannelLayout {
        match self {
            KernelBody::Conv2d { layout, .. }
            | KernelBody::Conv2dInputGrad { layout, .. }
            | KernelBody::Conv2dFilterGrad { layout, .. }
            | KernelBody::Pool2d { layout, .. }
            | KernelBody::MaxPool2dGrad { layout, .. }
            | KernelBody::SumPool2dGrad { layout, .. } => *layout,
            KernelBody::Map { .. }
            | KernelBody::Fold { .. }
            | KernelBody::ArgFold { .. }
            | KernelBody::MatMul { .. }
            | KernelBody::Chain { .. }
            | KernelBody::Gather { .. }
            | KernelBody::Scatter { .. } => ChannelLayout::ChannelsFirst,
        }
    }

    /// Returns the number of distinct values that the kernel touches.
    pub fn value_count(&self) -> usize {
        let reads = self.read_values();
        reads.len() + self.written_values().iter().filter(|value| !reads.contains(value)).count()
    }

    /// Returns the most distinct values that this kernel can touch on `target`.
    pub fn values_max(&self, target: &CompileTarget) -> usize {
        if matches!(self, KernelBody::Chain { .. }) { target.chain_values_max } else { target.kernel_values_max }
    }

    /// Returns the kernel's expressions.
    pub(crate) fn exprs(&self) -> Vec<&ScalarExpr> {
        match self {
            KernelBody::Map { expr, .. } => vec![expr],
            KernelBody::Fold { prologue, epilogue, .. } => vec![prologue, &epilogue.expr],
            KernelBody::MatMul { epilogue, .. } | KernelBody::Conv2d { epilogue, .. } => vec![&epilogue.expr],
            KernelBody::Chain { link, epilogue, .. } => vec![link, &epilogue.expr],
            KernelBody::ArgFold { .. }
            | KernelBody::Conv2dInputGrad { .. }
            | KernelBody::Conv2dFilterGrad { .. }
            | KernelBody::Pool2d { .. }
            | KernelBody::MaxPool2dGrad { .. }
            | KernelBody::SumPool2dGrad { .. }
            | KernelBody::Gather { .. }
            | KernelBody::Scatter { .. } => Vec::new(),
        }
    }

    /// Returns the number of instructions of the longest expression.
    pub(crate) fn longest_expr(&self) -> usize {
        self.exprs().iter().map(|expr| expr.instructions.len()).max().unwrap_or(0)
    }

    /// Returns the number of instructions of all expressions.
    pub(crate) fn instruction_count(&self) -> usize {
        self.exprs().iter().map(|expr| expr.instructions.len()).sum()
    }

    /// Replaces every value: operands through `read`, results through `write`.
    pub(crate) fn map_values(
        &mut self,
        read: &mut dyn FnMut(ValueId) -> ValueId,
        write: &mut dyn FnMut(ValueId) -> ValueId,
    ) {
        let named = self.operands();
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

    fn operands(&mut self) -> BodyOperands<'_> {
        match self {
            KernelBody::Map { expr, stores, .. } => {
                BodyOperands { reads: Vec::new(), writes: Vec::new(), exprs: vec![expr], stores: Some(stores) }
            }
            KernelBody::Fold { prologue, epilogue, .. } => BodyOperands {
                reads: Vec::new(),
                writes: Vec::new(),
                exprs: vec![prologue, &mut epilogue.expr],
                stores: Some(&mut epilogue.stores),
            },
            KernelBody::MatMul { a, b, epilogue, .. } => BodyOperands::with_epilogue(vec![a, b], epilogue),
            KernelBody::Chain { products, link, softmax, end, epilogue, .. } => {
                let mut reads: Vec<_> =
                    products.iter_mut().flat_map(|product| [&mut product.a.value, &mut product.b.value]).collect();
                if let FusedConsumer::Product { factor, .. } = end {
                    reads.push(&mut factor.value);
                }
                let rows = softmax.iter_mut().flat_map(|softmax| [&mut softmax.largest, &mut softmax.sum]);
                BodyOperands {
                    reads,
                    writes: rows.flatten().collect(),
                    exprs: vec![link, &mut epilogue.expr],
                    stores: Some(&mut epilogue.stores),
                }
            }
            KernelBody::Conv2d { input, filter, epilogue, .. } => {
                BodyOperands::with_epilogue(vec![input, filter], epilogue)
            }
            KernelBody::Conv2dInputGrad { gradient, filter, output, .. } => {
                BodyOperands::without_exprs(vec![gradient, filter], output)
            }
            KernelBody::Conv2dFilterGrad { input, gradient, output, .. }
            | KernelBody::MaxPool2dGrad { input, gradient, output, .. } => {
                BodyOperands::without_exprs(vec![input, gradient], output)
            }
            KernelBody::ArgFold { input, output, .. } | KernelBody::Pool2d { input, output, .. } => {
                BodyOperands::without_exprs(vec![input], output)
            }
            KernelBody::SumPool2dGrad { gradient, output, .. } => BodyOperands::without_exprs(vec![gradient], output),
            KernelBody::Gather { input, indices, output, .. } => {
                BodyOperands::without_exprs(vec![input, indices], output)
            }
            KernelBody::Scatter { base, indices, updates, output, .. } => {
                BodyOperands::without_exprs(base.iter_mut().chain([indices, updates]).collect(), output)
            }
        }
    }
}
