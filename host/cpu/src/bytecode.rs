//! Bytecode for the block evaluator, compiled from a [`ScalarExpr`]. Dimensions that all views traverse alike are
//! merged. Values that are equal for every element are computed once, and values that are equal along a long row once
//! per block. Dense operands are read in place. Registers share scratch slots.

mod merged_dims;

use merged_dims::MergedDims;
use saggar_compile::program::ValueId;
use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, RandomDistribution, Scalar, UnaryOp};

/// Maximum number of iteration dimensions after merging. A walk keeps its coordinates in an array of this size.
pub(super) const DIMS_MAX: usize = 16;

/// Length of the innermost dimension from which a block stays within one row, so that values that are equal along a row
/// are computed once. Blocks span several shorter rows, because each step has a fixed cost per block.
const ROW_MIN: usize = 512;

/// The location of a register's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterPlace {
    /// In a scratch slot.
    Slot(usize),
    /// In element 0 of a scratch slot that is kept for the whole task or block. All elements have this value.
    Uniform(usize),
    /// In an operand's dense memory, from this element on.
    Dense {
        /// Operand index.
        operand: usize,
        /// Element index of the iteration's first point.
        offset: usize,
    },
}

/// How an operand's memory is bound. Decides whether it can be read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandBinding {
    /// Only read by this kernel.
    Shared,
    /// Also written by this kernel, so elements must be copied first.
    Own,
}

/// One operation on a block of registers.
#[derive(Clone, Debug)]
pub(super) struct BytecodeStep {
    /// Scratch slot of the result.
    pub(super) slot: usize,
    /// Data type of the result.
    pub(super) dtype: DType,
    /// The operation.
    pub(super) op: BytecodeOp,
}

/// The operation of a step.
#[derive(Clone, Debug)]
pub(super) enum BytecodeOp {
    /// Loads elements of an operand through a view.
    Load {
        /// Operand index.
        operand: usize,
        /// The elements to load.
        view: AffineView,
        /// The value of elements out of bounds.
        fill: Option<Scalar>,
    },
    /// Copies elements of an operand that is dense in iteration order.
    Copy {
        /// Operand index.
        operand: usize,
        /// Element index of the iteration's first point.
        offset: usize,
    },
    /// Reads the reduced or contracted elements, dense, in the register's type.
    Accumulated {
        /// Operand index.
        operand: usize,
    },
    /// Writes a constant.
    Immediate(Scalar),
    /// Writes element indices.
    Index(AffineView),
    /// Writes random numbers.
    Random {
        /// Operand index of the key.
        operand: usize,
        /// Number of the random stream.
        stream: u32,
        /// Distribution of the numbers.
        distribution: RandomDistribution,
        /// The elements to generate.
        view: AffineView,
    },
    /// Applies an operator to one operand of type `from`.
    Unary {
        /// The operator.
        op: UnaryOp,
        /// The operand.
        x: RegisterPlace,
        /// Data type of the operand.
        from: DType,
    },
    /// Applies an operator to two operands of type `from`.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// First operand.
        a: RegisterPlace,
        /// Second operand.
        b: RegisterPlace,
        /// Data type of the operands.
        from: DType,
    },
    /// Selects between two values: condition, value if not 0, value if 0.
    Select(RegisterPlace, RegisterPlace, RegisterPlace),
}

/// Straight-line code for blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockBytecode {
    /// Merged iteration dimensions, at least one.
    pub(super) dims: Vec<usize>,
    /// Steps that run once per task, on one element.
    pub(super) uniform: Vec<BytecodeStep>,
    /// Steps that run once per block, on its first element.
    pub(super) per_row: Vec<BytecodeStep>,
    /// Row length in elements if blocks must stay within rows, because some value is equal along a row.
    pub(super) row: Option<usize>,
    /// Steps that run for every block.
    pub(super) body: Vec<BytecodeStep>,
    /// Location of each requested register after the body.
    pub(super) results: Vec<RegisterPlace>,
    /// Data types of the requested registers.
    pub(super) dtypes: Vec<DType>,
    /// Number of scratch slots.
    pub(super) slots: usize,
    /// Operands that the body reads in place: operand index, first element, bytes of an element.
    pub(super) streams: Vec<[usize; 3]>,
}

/// A request to compile bytecode.
pub(super) struct BytecodeRequest<'a> {
    /// The expression.
    pub(super) expr: &'a ScalarExpr,
    /// The iteration space, outermost dimension first.
    pub(super) dims: &'a [usize],
    /// The registers to return.
    pub(super) results: &'a [Register],
    /// The operand of `Accumulated`, if any, and its binding.
    pub(super) accumulated: Option<(usize, OperandBinding)>,
    /// Whether blocks can be limited to rows.
    pub(super) by_rows: bool,
}

impl BlockBytecode {
    /// Compiles `request`. `operand` returns the operand index and binding of a value. Returns `None` if the space has
    /// more than [`DIMS_MAX`] dimensions after merging, or if an operand that is also written is not read element for
    /// element.
    pub(super) fn new(
        request: &BytecodeRequest<'_>,
        operand: &mut impl FnMut(ValueId) -> (usize, OperandBinding),
    ) -> Option<BlockBytecode> {
        let views = views_of(request.expr);
        let merged = MergedDims::new(request.dims, &views);
        if merged.dims.len() > DIMS_MAX {
            return None;
        }
        let mut compiler = BytecodeCompiler::new(request, merged);
        for index in 0..request.expr.instructions.len() {
            compiler.compile_instruction(index, operand)?;
        }
        Some(compiler.finish(request))
    }

    /// Returns the operations per element of the iteration space, to decide whether threads are worth it.
    pub(super) fn operations(&self) -> usize {
        self.body.len() + 1
    }

    /// Returns the length of the block that begins at `start` in a task that ends at `end`: at most `most` elements.
    pub(super) fn block_len(&self, start: usize, end: usize, most: usize) -> usize {
        let len = most.min(end - start);
        self.row.map_or(len, |row| len.min(row - start % row))
    }
}

fn views_of(expr: &ScalarExpr) -> Vec<&AffineView> {
    expr.instructions.iter().filter_map(|(instruction, _)| view_of(instruction)).collect()
}

fn view_of(instruction: &Instruction) -> Option<&AffineView> {
    match instruction {
        Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => Some(view),
        Instruction::Immediate(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => None,
    }
}

/// How often a register changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeRate {
    /// Never.
    Task,
    /// Once per row.
    Row,
    /// With every element.
    Element,
}

struct BytecodeCompiler {
    merged: MergedDims,
    uniform: Vec<BytecodeStep>,
    per_row: Vec<BytecodeStep>,
    /// How often each register changes.
    rates: Vec<ChangeRate>,
    body: Vec<BytecodeStep>,
    places: Vec<Option<RegisterPlace>>,
    dtypes: Vec<DType>,
    instructions: Vec<Instruction>,
    /// For each register, the last instruction that reads it: `usize::MAX` for results, `None` for dead code.
    last_use: Vec<Option<usize>>,
    free: Vec<usize>,
    slots: usize,
    streams: Vec<[usize; 3]>,
    accumulated: Option<(usize, OperandBinding)>,
    by_rows: bool,
}

impl BytecodeCompiler {
    fn new(request: &BytecodeRequest<'_>, merged: MergedDims) -> BytecodeCompiler {
        let instructions: Vec<Instruction> = request.expr.instructions.iter().map(|(i, _)| i.clone()).collect();
        let mut last_use = vec![None; instructions.len()];
        for register in request.results {
            last_use[register.0 as usize] = Some(usize::MAX);
        }
        for (index, instruction) in instructions.iter().enumerate().rev() {
            if last_use[index].is_some() {
                for register in operand_registers(instruction) {
                    let last = &mut last_use[register.0 as usize];
                    *last = Some(last.map_or(index, |last: usize| last.max(index)));
                }
            }
        }
        BytecodeCompiler {
            merged,
            uniform: Vec::new(),
            per_row: Vec::new(),
            rates: vec![ChangeRate::Element; instructions.len()],
            body: Vec::new(),
            places: vec![None; instructions.len()],
            dtypes: request.expr.instructions.iter().map(|&(_, dtype)| dtype).collect(),
            instructions,
            last_use,
            free: Vec::new(),
            slots: 0,
            streams: Vec::new(),
            accumulated: request.accumulated,
            by_rows: request.by_rows,
        }
    }

    fn register_place(&self, register: Register) -> RegisterPlace {
        self.places[register.0 as usize].expect("operands come before their users")
    }

    fn register_dtype(&self, register: Register) -> DType {
        self.dtypes[register.0 as usize]
    }

    /// Returns the operation that loads a register's elements, or `None` in place of it if the register is read where it is.
    /// Returns `None` if the load cannot be compiled.
    fn compile_load(
        &mut self,
        index: usize,
        view: &AffineView,
        fill: Option<Scalar>,
        (operand, binding): (usize, OperandBinding),
    ) -> Option<Option<(BytecodeOp, ChangeRate)>> {
        let dtype = self.dtypes[index];
        let view = self.merged.merge_view(view);
        Some(match (binding, self.merged.dense_offset(&view)) {
            (OperandBinding::Own, Some(0)) => {
                self.streams.push([operand, 0, dtype.bytes()]);
                Some((BytecodeOp::Copy { operand, offset: 0 }, ChangeRate::Element))
            }
            (OperandBinding::Own, Some(_) | None) => return None,
            (OperandBinding::Shared, _) if self.view_rate(&view) < ChangeRate::Element => {
                let rate = self.view_rate(&view);
                Some((BytecodeOp::Load { operand, view, fill }, rate))
            }
            (OperandBinding::Shared, Some(offset)) if dtype != DType::F16 => {
                self.streams.push([operand, offset, dtype.bytes()]);
                self.places[index] = Some(RegisterPlace::Dense { operand, offset });
                None
            }
            (OperandBinding::Shared, Some(offset)) => Some((BytecodeOp::Copy { operand, offset }, ChangeRate::Element)),
            (OperandBinding::Shared, None) => Some((BytecodeOp::Load { operand, view, fill }, ChangeRate::Element)),
        })
    }

    fn compile_instruction(
        &mut self,
        index: usize,
        operand: &mut impl FnMut(ValueId) -> (usize, OperandBinding),
    ) -> Option<()> {
        if self.last_use[index].is_none() {
            return Some(());
        }
        let dtype = self.dtypes[index];
        let instruction = self.instructions[index].clone();
        let (task, rate) = match &instruction {
            Instruction::Load { value, view, fill } => match self.compile_load(index, view, *fill, operand(*value))? {
                Some(load) => load,
                None => return Some(()),
            },
            Instruction::Immediate(scalar) => (BytecodeOp::Immediate(*scalar), ChangeRate::Task),
            Instruction::Index(view) => {
                let view = self.merged.merge_view(view);
                let rate = self.view_rate(&view);
                (BytecodeOp::Index(view), rate)
            }
            Instruction::Random { key, stream, distribution, view } => {
                let (operand, _) = operand(*key);
                let view = self.merged.merge_view(view);
                let rate = self.view_rate(&view);
                (BytecodeOp::Random { operand, stream: *stream, distribution: *distribution, view }, rate)
            }
            Instruction::Accumulated => {
                let (operand, binding) = self.accumulated.expect("only epilogues read accumulated elements");
                if binding == OperandBinding::Shared && dtype != DType::F16 {
                    self.places[index] = Some(RegisterPlace::Dense { operand, offset: 0 });
                    return Some(());
                }
                (BytecodeOp::Accumulated { operand }, ChangeRate::Element)
            }
            Instruction::Product(_) => return None,
            Instruction::Unary(op, x) => {
                if op.is_identity(self.register_dtype(*x)) {
                    return self.alias(index, *x);
                }
                (
                    BytecodeOp::Unary { op: *op, x: self.register_place(*x), from: self.register_dtype(*x) },
                    self.registers_rate(&[*x]),
                )
            }
            Instruction::Binary(op, a, b) => {
                let rate = self.registers_rate(&[*a, *b]);
                let (from, a, b) = (self.register_dtype(*a), self.register_place(*a), self.register_place(*b));
                (BytecodeOp::Binary { op: *op, a, b, from }, rate)
            }
            Instruction::Select(c, a, b) => {
                let rate = self.registers_rate(&[*c, *a, *b]);
                let (c, a, b) = (self.register_place(*c), self.register_place(*a), self.register_place(*b));
                (BytecodeOp::Select(c, a, b), rate)
            }
        };
        self.emit(index, task, rate);
        Some(())
    }

    /// Returns how often the elements of a view change.
    fn view_rate(&self, view: &AffineView) -> ChangeRate {
        let last = view.strides.len() - 1;
        let is_long = self.by_rows && self.merged.dims.last().is_some_and(|&row| row >= ROW_MIN);
        if is_uniform(view) {
            ChangeRate::Task
        } else if is_long && view.strides[last] == 0 && view.bounds.iter().all(|bound| bound.dim != last) {
            ChangeRate::Row
        } else {
            ChangeRate::Element
        }
    }

    /// Returns how often a value computed from `registers` changes.
    fn registers_rate(&self, registers: &[Register]) -> ChangeRate {
        registers.iter().map(|register| self.rates[register.0 as usize]).max().unwrap_or(ChangeRate::Task)
    }

    fn emit(&mut self, index: usize, task: BytecodeOp, rate: ChangeRate) {
        let dtype = self.dtypes[index];
        self.rates[index] = rate;
        if rate < ChangeRate::Element {
            let slot = self.slots;
            self.slots += 1;
            let steps = if rate == ChangeRate::Task { &mut self.uniform } else { &mut self.per_row };
            steps.push(BytecodeStep { slot, dtype, op: task });
            self.places[index] = Some(RegisterPlace::Uniform(slot));
        } else {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            });
            self.body.push(BytecodeStep { slot, dtype, op: task });
            self.places[index] = Some(RegisterPlace::Slot(slot));
        }
        self.free_operand_slots(index);
    }

    /// Frees the slots of operands whose last reader is instruction `index`.
    fn free_operand_slots(&mut self, index: usize) {
        let mut done = operand_registers(&self.instructions[index]);
        done.sort_unstable();
        done.dedup();
        for register in done {
            let Some(RegisterPlace::Slot(slot)) = self.places[register.0 as usize] else { continue };
            if self.last_use[register.0 as usize] == Some(index) {
                self.free.push(slot);
            }
        }
    }

    /// Gives instruction `index` the location of its operand. The slot must then live as long as the longer-lived of
    /// the two. Here it simply lives until the end, because such instructions are rare.
    fn alias(&mut self, index: usize, x: Register) -> Option<()> {
        self.places[index] = Some(self.register_place(x));
        self.rates[index] = self.rates[x.0 as usize];
        self.last_use[index] = Some(usize::MAX);
        self.last_use[x.0 as usize] = Some(usize::MAX);
        Some(())
    }

    fn finish(self, request: &BytecodeRequest<'_>) -> BlockBytecode {
        let dims = if self.merged.dims.is_empty() { vec![1] } else { self.merged.dims };
        let at = |register: &Register| register.0 as usize;
        BlockBytecode {
            row: dims.last().copied().filter(|_| !self.per_row.is_empty()),
            dims,
            uniform: self.uniform,
            per_row: self.per_row,
            body: self.body,
            results: request.results.iter().map(|r| self.places[at(r)].expect("results are computed")).collect(),
            dtypes: request.results.iter().map(|r| self.dtypes[at(r)]).collect(),
            slots: self.slots,
            streams: self.streams,
        }
    }
}

fn operand_registers(instruction: &Instruction) -> Vec<Register> {
    match instruction {
        Instruction::Load { .. }
        | Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Random { .. }
        | Instruction::Accumulated
        | Instruction::Product(_) => Vec::new(),
        Instruction::Unary(_, x) => vec![*x],
        Instruction::Binary(_, a, b) => vec![*a, *b],
        Instruction::Select(c, a, b) => vec![*c, *a, *b],
    }
}

fn is_uniform(view: &AffineView) -> bool {
    view.bounds.is_empty() && view.strides.iter().all(|&stride| stride == 0)
}
