//! An [`Expr`] made ready for a block evaluator: dimensions that all views walk alike are one, what is the same for
//! every element is computed once, loads of dense memory are read in place, and registers share scratch slots.

use saggar_compile::expr::{Bound, Expr, Instruction, Register, View};
use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Distribution, Scalar, Unary};

/// Iteration dimensions left after merging; a walk keeps its coordinates in an array of this size.
pub(super) const DIMS_MAX: usize = 16;

/// Where a register's block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a scratch slot.
    Slot(usize),
    /// In element 0 of a scratch slot that stays for the whole task: the same for all elements.
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
}

fn views_of(expr: &Expr) -> Vec<&View> {
    expr.instructions.iter().filter_map(|(instruction, _)| view_of(instruction)).collect()
}

fn view_of(instruction: &Instruction) -> Option<&View> {
    match instruction {
        Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => Some(view),
        Instruction::Immediate(_)
        | Instruction::Accumulated
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => None,
    }
}

/// Iteration dimensions grouped into runs that every view walks as one.
struct Merged {
    dims: Vec<usize>,
    /// For each group, its innermost original dimension: a view's stride there is its stride for the group.
    innermost: Vec<usize>,
    original: Vec<usize>,
}

impl Merged {
    fn new(dims: &[usize], views: &[&View]) -> Merged {
        let bounded = |dim: usize| views.iter().any(|view| view.bounds.iter().any(|b| real(b, dims) && b.dim == dim));
        let mut merged = Merged { dims: Vec::new(), innermost: Vec::new(), original: dims.to_vec() };
        for (dim, &size) in dims.iter().enumerate() {
            if size == 1 && !bounded(dim) {
                continue;
            }
            let joins = merged.innermost.last().is_some_and(|&outer| {
                let alike = |view: &&View| view.strides[outer] == view.strides[dim].wrapping_mul(size as i64);
                !bounded(outer) && !bounded(dim) && views.iter().all(alike)
            });
            if joins {
                let last = merged.dims.len() - 1;
                merged.dims[last] *= size;
                merged.innermost[last] = dim;
            } else {
                merged.dims.push(size);
                merged.innermost.push(dim);
            }
        }
        merged
    }

    /// The first element, if a merged view walks memory in the order of the iteration.
    fn dense(&self, view: &View) -> Option<usize> {
        let mut expected = 1;
        for (&size, &stride) in self.dims.iter().zip(&view.strides).rev() {
            if stride != expected {
                return None;
            }
            expected *= size as i64;
        }
        if view.bounds.is_empty() { usize::try_from(view.offset).ok() } else { None }
    }

    /// A view over the groups. Size-1 dimensions contribute nothing: their coordinate is always 0.
    fn view(&self, view: &View) -> View {
        let group = |dim: usize| self.innermost.iter().position(|&inner| inner == dim);
        let bounds = view
            .bounds
            .iter()
            .filter(|bound| real(bound, &self.original))
            .map(|bound| Bound { dim: group(bound.dim).expect("bounded dimensions stay"), ..*bound })
            .collect();
        let mut strides: Vec<i64> = self.innermost.iter().map(|&dim| view.strides[dim]).collect();
        if strides.is_empty() {
            strides.push(0);
        }
        View { offset: view.offset, strides, bounds }
    }
}

/// Whether a bound excludes any coordinate.
fn real(bound: &Bound, dims: &[usize]) -> bool {
    bound.low > 0 || bound.high < dims[bound.dim] as i64
}

struct Compiler {
    merged: Merged,
    uniform: Vec<Step>,
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
            body: Vec::new(),
            places: vec![None; instructions.len()],
            dtypes: request.expr.instructions.iter().map(|&(_, dtype)| dtype).collect(),
            instructions,
            last_use,
            free: Vec::new(),
            slots: 0,
            streams: Vec::new(),
            accumulated: request.accumulated,
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
        let (task, uniform) = match &instruction {
            Instruction::Load { value, view, fill } => {
                let view = self.merged.view(view);
                let (operand, binding) = operand(*value);
                match (binding, self.merged.dense(&view)) {
                    (Binding::Own, Some(0)) => {
                        self.streams.push([operand, 0, dtype.bytes()]);
                        (Task::Copy { operand, offset: 0 }, false)
                    }
                    (Binding::Own, Some(_) | None) => return None,
                    (Binding::Shared, _) if is_uniform(&view) => (Task::Load { operand, view, fill: *fill }, true),
                    (Binding::Shared, Some(offset)) if dtype != DType::F16 => {
                        self.streams.push([operand, offset, dtype.bytes()]);
                        self.places[index] = Some(Place::Dense { operand, offset });
                        return Some(());
                    }
                    (Binding::Shared, Some(offset)) => (Task::Copy { operand, offset }, false),
                    (Binding::Shared, None) => (Task::Load { operand, view, fill: *fill }, false),
                }
            }
            Instruction::Immediate(scalar) => (Task::Immediate(*scalar), true),
            Instruction::Index(view) => {
                let view = self.merged.view(view);
                let uniform = is_uniform(&view);
                (Task::Index(view), uniform)
            }
            Instruction::Random { key, stream, distribution, view } => {
                let (operand, _) = operand(*key);
                let view = self.merged.view(view);
                let uniform = is_uniform(&view);
                (Task::Random { operand, stream: *stream, distribution: *distribution, view }, uniform)
            }
            Instruction::Accumulated => {
                let (operand, binding) = self.accumulated.expect("only epilogues read what is accumulated");
                if binding == Binding::Shared && dtype != DType::F16 {
                    self.places[index] = Some(Place::Dense { operand, offset: 0 });
                    return Some(());
                }
                (Task::Accumulated { operand }, false)
            }
            Instruction::Unary(op, x) => {
                if self.keeps_bits(*op, *x, dtype) {
                    return self.alias(index, *x);
                }
                let place = self.place(*x);
                (Task::Unary { op: *op, x: place, from: self.dtype(*x) }, is_constant(&[place]))
            }
            Instruction::Binary(op, a, b) => {
                let (from, a, b) = (self.dtype(*a), self.place(*a), self.place(*b));
                (Task::Binary { op: *op, a, b, from }, is_constant(&[a, b]))
            }
            Instruction::Select(c, a, b) => {
                let (c, a, b) = (self.place(*c), self.place(*a), self.place(*b));
                (Task::Select(c, a, b), is_constant(&[c, a, b]))
            }
        };
        self.emit(index, task, uniform);
        Some(())
    }

    fn emit(&mut self, index: usize, task: Task, uniform: bool) {
        let dtype = self.dtypes[index];
        if uniform {
            let slot = self.slots;
            self.slots += 1;
            self.uniform.push(Step { slot, dtype, task });
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
        self.last_use[index] = Some(usize::MAX);
        self.last_use[x.0 as usize] = Some(usize::MAX);
        Some(())
    }

    fn finish(self, request: &Request<'_>) -> Routine {
        let dims = if self.merged.dims.is_empty() { vec![1] } else { self.merged.dims };
        let at = |register: &Register| register.0 as usize;
        Routine {
            dims,
            uniform: self.uniform,
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
        | Instruction::Accumulated => Vec::new(),
        Instruction::Unary(_, x) => vec![*x],
        Instruction::Binary(_, a, b) => vec![*a, *b],
        Instruction::Select(c, a, b) => vec![*c, *a, *b],
    }
}

fn is_uniform(view: &View) -> bool {
    view.bounds.is_empty() && view.strides.iter().all(|&stride| stride == 0)
}

fn is_constant(places: &[Place]) -> bool {
    places.iter().all(|place| match place {
        Place::Uniform(_) => true,
        Place::Slot(_) | Place::Dense { .. } => false,
    })
}
