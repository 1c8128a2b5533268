//! An [`Expr`] made ready for a block evaluator: dimensions that all views walk alike are one, what is the same for
//! every element is computed once, what is the same along a long row once for each block of it, loads of dense memory are
//! read in place, and registers share scratch slots.

mod merged;

use merged::Merged;
use saggar_compile::expr::{Expr, Instruction, Register, View};
use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Distribution, Scalar, Unary};

/// Iteration dimensions left after merging; a walk keeps its coordinates in an array of this size.
pub(super) const DIMS_MAX: usize = 16;

/// Elements of the innermost dimension from which blocks keep to one row of it: what is the same along a row is one number
/// then. Of shorter rows a block has several, since each step of a block costs something whatever its length.
const ROW_MIN: usize = 512;

/// Where a register's block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a scratch slot.
    Slot(usize),
    /// In element 0 of a scratch slot that stays for the whole task, or block: the same for all its elements.
    Uniform(usize),
    /// In the memory of an operand, dense, from this element on.
    Dense {
        /// Which operand.
        operand: usize,
        /// Element of the iteration's first point.
        offset: usize,
    },
}

/// How an operand's memory is bound; decides what may be read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Only read by this kernel.
    Shared,
    /// Also written by it, so that elements are copied out before.
    Own,
}

/// One operation on a block of registers.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Where the result goes.
    pub(super) slot: usize,
    /// The result's type.
    pub(super) dtype: DType,
    /// What is done.
    pub(super) task: Task,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Elements of an operand.
    Load {
        /// Which operand.
        operand: usize,
        /// Which elements.
        view: View,
        /// What stands out of bounds.
        fill: Option<Scalar>,
    },
    /// Elements of an operand that lie as the iteration goes, from element `offset` on.
    Copy {
        /// Which operand.
        operand: usize,
        /// Element of the iteration's first point.
        offset: usize,
    },
    /// The folded or contracted elements, dense, held in the register's type.
    Accumulated {
        /// Which operand.
        operand: usize,
    },
    /// A constant.
    Immediate(Scalar),
    /// Element indices.
    Index(View),
    /// Random numbers.
    Random {
        /// The operand with the key.
        operand: usize,
        /// Which stream.
        stream: u32,
        /// What is drawn.
        distribution: Distribution,
        /// Which elements.
        view: View,
    },
    /// One operand, of type `from`.
    Unary {
        /// What.
        op: Unary,
        /// Of what.
        x: Place,
        /// The operand's type.
        from: DType,
    },
    /// Two operands, of type `from`.
    Binary {
        /// What.
        op: Binary,
        /// First operand.
        a: Place,
        /// Second operand.
        b: Place,
        /// The operands' type.
        from: DType,
    },
    /// Condition, where not 0, where 0.
    Select(Place, Place, Place),
}

/// Straight-line block code.
#[derive(Clone, Debug)]
pub(super) struct Routine {
    /// Merged iteration dimensions, at least one.
    pub(super) dims: Vec<usize>,
    /// Run once a task, on one element.
    pub(super) uniform: Vec<Step>,
    /// Run once a block, on its first element.
    pub(super) along: Vec<Step>,
    /// Elements of the rows to which blocks keep, where anything is the same along them.
    pub(super) row: Option<usize>,
    /// Run for every block.
    pub(super) body: Vec<Step>,
    /// Where each of the asked registers is after the body.
    pub(super) results: Vec<Place>,
    /// Types of the asked registers.
    pub(super) dtypes: Vec<DType>,
    /// Scratch slots needed.
    pub(super) slots: usize,
    /// Operands that the body reads in place: which, from which element on, and the bytes of an element.
    pub(super) streams: Vec<[usize; 3]>,
}

/// What a routine is made of.
pub(super) struct Request<'a> {
    /// The code.
    pub(super) expr: &'a Expr,
    /// Its iteration space, outermost first.
    pub(super) dims: &'a [usize],
    /// Which registers are wanted.
    pub(super) results: &'a [Register],
    /// The operand of `Accumulated`, if there is one, and how it is bound.
    pub(super) accumulated: Option<(usize, Binding)>,
    /// Whether blocks may be made to keep to rows.
    pub(super) by_rows: bool,
}

impl Routine {
    /// Compiles `request`; `operand` says where a value is bound. None where the space has more than [`DIMS_MAX`]
    /// dimensions that cannot be merged, or an operand that is also written is not read element for element.
    pub(super) fn new(request: &Request<'_>, operand: &mut impl FnMut(ValueId) -> (usize, Binding)) -> Option<Routine> {
        let views = views_of(request.expr);
        let merged = Merged::new(request.dims, &views);
        if merged.dims.len() > DIMS_MAX {
            return None;
        }
        let mut compiler = Compiler::new(request, merged);
        for index in 0..request.expr.instructions.len() {
            compiler.instruction(index, operand)?;
        }
        Some(compiler.finish(request))
    }

    /// Operations for one element of the iteration space, for deciding whether threads are worth it.
    pub(super) fn operations(&self) -> usize {
        self.body.len() + 1
    }

    /// Elements of the block that begins at `start` in a task that ends at `end`: `most` of them, or fewer.
    pub(super) fn block_len(&self, start: usize, end: usize, most: usize) -> usize {
        let len = most.min(end - start);
        self.row.map_or(len, |row| len.min(row - start % row))
    }
}

fn views_of(expr: &Expr) -> Vec<&View> {
    expr.instructions.iter().filter_map(|(instruction, _)| view_of(instruction)).collect()
}

fn view_of(instruction: &Instruction) -> Option<&View> {
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
enum Rate {
    /// Never.
    Task,
    /// From row to row.
    Row,
    /// From element to element.
    Element,
}

struct Compiler {
    merged: Merged,
    uniform: Vec<Step>,
    along: Vec<Step>,
    /// How often each register changes.
    rates: Vec<Rate>,
    body: Vec<Step>,
    places: Vec<Option<Place>>,
    dtypes: Vec<DType>,
    instructions: Vec<Instruction>,
    /// For each register, the last instruction that reads it; `usize::MAX` for results, none for dead code.
    last_use: Vec<Option<usize>>,
    free: Vec<usize>,
    slots: usize,
    streams: Vec<[usize; 3]>,
    accumulated: Option<(usize, Binding)>,
    by_rows: bool,
}

impl Compiler {
    fn new(request: &Request<'_>, merged: Merged) -> Compiler {
        let instructions: Vec<Instruction> = request.expr.instructions.iter().map(|(i, _)| i.clone()).collect();
        let mut last_use = vec![None; instructions.len()];
        for register in request.results {
            last_use[register.0 as usize] = Some(usize::MAX);
        }
        for (index, instruction) in instructions.iter().enumerate().rev() {
            if last_use[index].is_some() {
                for register in operands(instruction) {
                    let last = &mut last_use[register.0 as usize];
                    *last = Some(last.map_or(index, |last: usize| last.max(index)));
                }
            }
        }
        Compiler {
            merged,
            uniform: Vec::new(),
            along: Vec::new(),
            rates: vec![Rate::Element; instructions.len()],
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

    fn place(&self, register: Register) -> Place {
        self.places[register.0 as usize].expect("operands come before their users")
    }

    fn dtype(&self, register: Register) -> DType {
        self.dtypes[register.0 as usize]
    }

    fn instruction(&mut self, index: usize, operand: &mut impl FnMut(ValueId) -> (usize, Binding)) -> Option<()> {
        if self.last_use[index].is_none() {
            return Some(());
        }
        let dtype = self.dtypes[index];
        let instruction = self.instructions[index].clone();
        let (task, rate) = match &instruction {
            Instruction::Load { value, view, fill } => {
                let view = self.merged.view(view);
                let (operand, binding) = operand(*value);
                match (binding, self.merged.dense(&view)) {
                    (Binding::Own, Some(0)) => {
                        self.streams.push([operand, 0, dtype.bytes()]);
                        (Task::Copy { operand, offset: 0 }, Rate::Element)
                    }
                    (Binding::Own, Some(_) | None) => return None,
                    (Binding::Shared, _) if self.rate(&view) < Rate::Element => {
                        let rate = self.rate(&view);
                        (Task::Load { operand, view, fill: *fill }, rate)
                    }
                    (Binding::Shared, Some(offset)) if dtype != DType::F16 => {
                        self.streams.push([operand, offset, dtype.bytes()]);
                        self.places[index] = Some(Place::Dense { operand, offset });
                        return Some(());
                    }
                    (Binding::Shared, Some(offset)) => (Task::Copy { operand, offset }, Rate::Element),
                    (Binding::Shared, None) => (Task::Load { operand, view, fill: *fill }, Rate::Element),
                }
            }
            Instruction::Immediate(scalar) => (Task::Immediate(*scalar), Rate::Task),
            Instruction::Index(view) => {
                let view = self.merged.view(view);
                let rate = self.rate(&view);
                (Task::Index(view), rate)
            }
            Instruction::Random { key, stream, distribution, view } => {
                let (operand, _) = operand(*key);
                let view = self.merged.view(view);
                let rate = self.rate(&view);
                (Task::Random { operand, stream: *stream, distribution: *distribution, view }, rate)
            }
            Instruction::Accumulated => {
                let (operand, binding) = self.accumulated.expect("only epilogues read what is accumulated");
                if binding == Binding::Shared && dtype != DType::F16 {
                    self.places[index] = Some(Place::Dense { operand, offset: 0 });
                    return Some(());
                }
                (Task::Accumulated { operand }, Rate::Element)
            }
            Instruction::Product(_) => return None,
            Instruction::Unary(op, x) => {
                if self.keeps_bits(*op, *x, dtype) {
                    return self.alias(index, *x);
                }
                (Task::Unary { op: *op, x: self.place(*x), from: self.dtype(*x) }, self.rate_of(&[*x]))
            }
            Instruction::Binary(op, a, b) => {
                let rate = self.rate_of(&[*a, *b]);
                let (from, a, b) = (self.dtype(*a), self.place(*a), self.place(*b));
                (Task::Binary { op: *op, a, b, from }, rate)
            }
            Instruction::Select(c, a, b) => {
                let rate = self.rate_of(&[*c, *a, *b]);
                let (c, a, b) = (self.place(*c), self.place(*a), self.place(*b));
                (Task::Select(c, a, b), rate)
            }
        };
        self.emit(index, task, rate);
        Some(())
    }

    /// How often what a view shows changes.
    fn rate(&self, view: &View) -> Rate {
        let last = view.strides.len() - 1;
        let is_long = self.by_rows && self.merged.dims.last().is_some_and(|&row| row >= ROW_MIN);
        if is_uniform(view) {
            Rate::Task
        } else if is_long && view.strides[last] == 0 && view.bounds.iter().all(|bound| bound.dim != last) {
            Rate::Row
        } else {
            Rate::Element
        }
    }

    /// How often what is computed of registers changes.
    fn rate_of(&self, registers: &[Register]) -> Rate {
        registers.iter().map(|register| self.rates[register.0 as usize]).max().unwrap_or(Rate::Task)
    }

    fn emit(&mut self, index: usize, task: Task, rate: Rate) {
        let dtype = self.dtypes[index];
        self.rates[index] = rate;
        if rate < Rate::Element {
            let slot = self.slots;
            self.slots += 1;
            let steps = if rate == Rate::Task { &mut self.uniform } else { &mut self.along };
            steps.push(Step { slot, dtype, task });
            self.places[index] = Some(Place::Uniform(slot));
        } else {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            });
            self.body.push(Step { slot, dtype, task });
            self.places[index] = Some(Place::Slot(slot));
        }
        self.release(index);
    }

    /// Frees the slots of operands that instruction `index` was the last to read.
    fn release(&mut self, index: usize) {
        let mut done = operands(&self.instructions[index]);
        done.sort_unstable();
        done.dedup();
        for register in done {
            let Some(Place::Slot(slot)) = self.places[register.0 as usize] else { continue };
            if self.last_use[register.0 as usize] == Some(index) {
                self.free.push(slot);
            }
        }
    }

    fn keeps_bits(&self, op: Unary, x: Register, dtype: DType) -> bool {
        match op {
            Unary::StopGradient => true,
            Unary::Cast(to) => to == self.dtype(x) && to == dtype,
            Unary::Neg
            | Unary::Abs
            | Unary::Sign
            | Unary::Exp
            | Unary::Log
            | Unary::Sqrt
            | Unary::Reciprocal
            | Unary::Sin
            | Unary::Cos
            | Unary::Tanh
            | Unary::Erf
            | Unary::Floor
            | Unary::Ceil
            | Unary::RoundEven
            | Unary::LogicalNot => false,
        }
    }

    /// Gives instruction `index` its operand's place. A slot then lives as long as the longer-lived of the two; that
    /// is simply until the routine's end here, for such instructions are rare.
    fn alias(&mut self, index: usize, x: Register) -> Option<()> {
        self.places[index] = Some(self.place(x));
        self.rates[index] = self.rates[x.0 as usize];
        self.last_use[index] = Some(usize::MAX);
        self.last_use[x.0 as usize] = Some(usize::MAX);
        Some(())
    }

    fn finish(self, request: &Request<'_>) -> Routine {
        let dims = if self.merged.dims.is_empty() { vec![1] } else { self.merged.dims };
        let at = |register: &Register| register.0 as usize;
        Routine {
            row: dims.last().copied().filter(|_| !self.along.is_empty()),
            dims,
            uniform: self.uniform,
            along: self.along,
            body: self.body,
            results: request.results.iter().map(|r| self.places[at(r)].expect("results are computed")).collect(),
            dtypes: request.results.iter().map(|r| self.dtypes[at(r)]).collect(),
            slots: self.slots,
            streams: self.streams,
        }
    }
}

fn operands(instruction: &Instruction) -> Vec<Register> {
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

fn is_uniform(view: &View) -> bool {
    view.bounds.is_empty() && view.strides.iter().all(|&stride| stride == 0)
}
