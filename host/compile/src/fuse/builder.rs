//! Builder for expressions: equal instructions become one.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use saggar_tensor::DType;
use saggar_tensor::op::Scalar;

use crate::program::expr::{Instruction, Register, ScalarExpr};

/// An expression and an index of its instructions.
#[derive(Default)]
pub(super) struct ExprBuilder {
    expr: ScalarExpr,
    /// Registers by hash of the instruction; on a collision, by the next free number after the hash.
    known: HashMap<u64, Register>,
}

impl ExprBuilder {
    /// Returns the register of this instruction, and adds the instruction if no equal one exists.
    pub(super) fn push(&mut self, instruction: Instruction, dtype: DType) -> Register {
        let wanted = InstructionKey(&instruction, dtype);
        let mut hash = self.known.hasher().hash_one(&wanted);
        while let Some(&register) = self.known.get(&hash) {
            let (known, known_dtype) = &self.expr.instructions[register.0 as usize];
            if InstructionKey(known, *known_dtype) == wanted {
                return register;
            }
            hash = hash.wrapping_add(1);
        }
        let register = Register(self.expr.instructions.len() as u32);
        self.known.insert(hash, register);
        self.expr.instructions.push((instruction, dtype));
        register
    }

    pub(super) fn instruction(&self, register: Register) -> &Instruction {
        &self.expr.instructions[register.0 as usize].0
    }

    pub(super) fn len(&self) -> usize {
        self.expr.instructions.len()
    }

    /// Returns only the instructions that the registers in `wanted` need, and renumbers `wanted`. The last register of
    /// `wanted` becomes the last instruction.
    pub(super) fn finish(mut self, wanted: &mut [Register]) -> ScalarExpr {
        let mut needed = vec![false; self.expr.instructions.len()];
        wanted.iter().for_each(|register| needed[register.0 as usize] = true);
        for at in (0..needed.len()).rev() {
            if needed[at] {
                operands(&mut self.expr.instructions[at].0).for_each(|operand| needed[operand.0 as usize] = true);
            }
        }
        let mut renumbered = vec![Register(0); needed.len()];
        let mut expr = ScalarExpr::default();
        for (at, (mut instruction, dtype)) in self.expr.instructions.into_iter().enumerate() {
            if needed[at] {
                operands(&mut instruction).for_each(|operand| *operand = renumbered[operand.0 as usize]);
                renumbered[at] = Register(expr.instructions.len() as u32);
                expr.instructions.push((instruction, dtype));
            }
        }
        wanted.iter_mut().for_each(|register| *register = renumbered[register.0 as usize]);
        expr
    }
}

fn operands(instruction: &mut Instruction) -> impl Iterator<Item = &mut Register> {
    let operands = match instruction {
        Instruction::Load { .. }
        | Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Random { .. }
        | Instruction::Accumulated
        | Instruction::Product(_) => [None, None, None],
        Instruction::Unary(_, a) => [Some(a), None, None],
        Instruction::Binary(_, a, b) => [Some(a), Some(b), None],
        Instruction::Select(condition, a, b) => [Some(condition), Some(a), Some(b)],
    };
    operands.into_iter().flatten()
}

/// An instruction compared by the bits of its numbers: 0 and -0 differ, and a NaN equals itself.
struct InstructionKey<'a>(&'a Instruction, DType);

fn bits(scalar: Scalar) -> (u8, u128) {
    match scalar {
        Scalar::Float(value) => (0, u128::from(value.to_bits())),
        Scalar::Int(value) => (1, value as u128),
    }
}

impl PartialEq for InstructionKey<'_> {
    fn eq(&self, other: &InstructionKey<'_>) -> bool {
        let same = match (self.0, other.0) {
            (Instruction::Immediate(a), Instruction::Immediate(b)) => bits(*a) == bits(*b),
            (
                Instruction::Load { value, view, fill },
                Instruction::Load { value: other_value, view: other_view, fill: other_fill },
            ) => value == other_value && view == other_view && fill.map(bits) == other_fill.map(bits),
            (a, b) => a == b,
        };
        same && self.1 == other.1
    }
}

impl Eq for InstructionKey<'_> {}

impl Hash for InstructionKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        self.1.hash(state);
        match self.0 {
            Instruction::Load { value, view, fill } => (value, view, fill.map(bits)).hash(state),
            Instruction::Immediate(scalar) => bits(*scalar).hash(state),
            Instruction::Index(view) => view.hash(state),
            Instruction::Random { key, stream, distribution, view } => (key, stream, distribution, view).hash(state),
            Instruction::Accumulated => {}
            Instruction::Product(number) => number.hash(state),
            Instruction::Unary(unary, a) => (unary, a).hash(state),
            Instruction::Binary(binary, a, b) => (binary, a, b).hash(state),
            Instruction::Select(condition, a, b) => (condition, a, b).hash(state),
        }
    }
}
