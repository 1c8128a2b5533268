//! Programs as text, for golden tests and for people: slabs, kernels, and where each value lies.

use std::fmt;

use saggar_tensor::op::{Op, Scalar};

use crate::expr::{Expr, Instruction, Register, View};
use crate::label::family;
use crate::program::{Body, End, Kernel, Layout, Place, Program, Store, ValueId};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, slab) in self.slabs.iter().enumerate() {
            writeln!(f, "slab {at} {:?} {} bytes", slab.class, slab.bytes)?;
        }
        self.kernels.iter().try_for_each(|kernel| KernelText(self, kernel).fmt(f))
    }
}

impl Program {
    /// One of its kernels as text: sizes, labels, what it reads and writes and where that lies, and what it computes.
    pub fn kernel_text<'a>(&'a self, kernel: &'a Kernel) -> impl fmt::Display + 'a {
        KernelText(self, kernel)
    }
}

impl Program {
    /// What one of its kernels computes, without where it reads and writes and what follows on the way there: equal for kernels
    /// that take as long as each other, about. For tables that outlive the program.
    pub fn kernel_identity(&self, kernel: &Kernel) -> String {
        let (reads, writes) = (kernel.body.reads(), kernel.body.writes());
        let touched = reads.iter().take(2).chain(writes.iter().take(1));
        let touched: Vec<String> = touched.map(|value| self.values[value.index()].descriptor.to_string()).collect();
        format!("{} {} of {}", family(&kernel.body), geometry(&kernel.body), touched.join(", "))
    }
}

struct KernelText<'a>(&'a Program, &'a Kernel);

impl fmt::Display for KernelText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelText(program, kernel) = self;
        let values = |values: Vec<ValueId>| {
            values.into_iter().map(|value| ValueText(program, value).to_string()).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "{} {}", family(&kernel.body), geometry(&kernel.body))?;
        if let Some((_, label)) = kernel.label.split_once(": ") {
            writeln!(f, "  labels {label}")?;
        }
        let reads = kernel.body.reads();
        if !reads.is_empty() {
            writeln!(f, "  reads {}", values(reads))?;
        }
        writeln!(f, "  writes {}", values(kernel.body.writes()))?;
        exprs(f, &kernel.body)
    }
}

struct ValueText<'a>(&'a Program, ValueId);

impl fmt::Display for ValueText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.0.values[self.1.index()];
        write!(f, "v{}=", self.1.0)?;
        match value.place {
            Place::Input(at) => write!(f, "input:{}", self.0.inputs[at as usize].name),
            Place::Variable(at) => write!(f, "variable:{}", self.0.variables[at as usize].name),
            Place::Constant(at) => write!(f, "constant:{at}"),
            Place::Output(at) => match self.0.outputs.get(at as usize) {
                Some(port) => write!(f, "output:{}", port.name),
                None => write!(f, "output:{at}"),
            },
            Place::Slab { slab, offset_bytes } => write!(f, "slab:{slab}+{offset_bytes}"),
        }?;
        write!(f, " {}", value.descriptor)
    }
}

/// Sizes and options.
fn geometry(body: &Body) -> String {
    match body {
        Body::Map { dims, .. } => format!("{dims:?}"),
        Body::Fold { kind, outer, inner, .. } => format!("{kind:?} {outer:?} over {inner:?}"),
        Body::ArgFold { largest, dims, .. } => format!("{} {dims:?}", if *largest { "largest" } else { "smallest" }),
        Body::MatMul { sizes, transpose_a, transpose_b, batch_stride_a, batch_stride_b, .. } => {
            let [batch, m, n, k] = sizes;
            let turned = |turned: &bool| if *turned { "'" } else { "" };
            let (a, b) = (turned(transpose_a), turned(transpose_b));
            format!("{batch}x [{m}, {k}]{a} [{k}, {n}]{b} batch strides {batch_stride_a}, {batch_stride_b}")
        }
        Body::Chain { dims, products, softmax, end, results, .. } => {
            let depths: Vec<usize> = products.iter().map(|product| product.depth).collect();
            let of = if softmax.is_some() { " softmax" } else { "" };
            let end = match end {
                End::Fold(kind) => format!("{kind:?}"),
                End::Product { turned: false, .. } => "product".to_owned(),
                End::Product { turned: true, .. } => "product'".to_owned(),
            };
            format!("{dims:?} of depths {depths:?}{of} {end} {results:?}")
        }
        Body::Conv2d { conv, layout, result, .. } => format!("{result:?} {conv:?}{}", last(*layout)),
        Body::Conv2dInputGrad { conv, layout, .. } | Body::Conv2dFilterGrad { conv, layout, .. } => {
            format!("{conv:?}{}", last(*layout))
        }
        Body::Pool2d { kind, pool, layout, .. } => format!("{kind:?} {pool:?}{}", last(*layout)),
        Body::MaxPool2dGrad { pool, layout, .. } | Body::SumPool2dGrad { pool, layout, .. } => {
            format!("{pool:?}{}", last(*layout))
        }
        Body::Gather { dims, .. } | Body::Scatter { dims, .. } => format!("{dims:?}"),
    }
}

/// What is said of a layout that is not the usual one.
fn last(layout: Layout) -> &'static str {
    match layout {
        Layout::ChannelsFirst => "",
        Layout::ChannelsLast => " channels last",
    }
}

fn exprs(f: &mut fmt::Formatter<'_>, body: &Body) -> fmt::Result {
    match body {
        Body::Map { expr, stores, .. } => expression(f, expr, stores),
        Body::Fold { prologue, epilogue, .. } => {
            expression(f, prologue, &[])?;
            writeln!(f, "  then")?;
            expression(f, &epilogue.expr, &epilogue.stores)
        }
        Body::Chain { link, epilogue, .. } => {
            expression(f, link, &[])?;
            writeln!(f, "  then")?;
            expression(f, &epilogue.expr, &epilogue.stores)
        }
        Body::MatMul { epilogue, .. } | Body::Conv2d { epilogue, .. } => {
            expression(f, &epilogue.expr, &epilogue.stores)
        }
        Body::ArgFold { .. }
        | Body::Conv2dInputGrad { .. }
        | Body::Conv2dFilterGrad { .. }
        | Body::Pool2d { .. }
        | Body::MaxPool2dGrad { .. }
        | Body::SumPool2dGrad { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. } => Ok(()),
    }
}

fn expression(f: &mut fmt::Formatter<'_>, expr: &Expr, stores: &[Store]) -> fmt::Result {
    for (at, (instruction, dtype)) in expr.instructions.iter().enumerate() {
        write!(f, "    %{at} = ")?;
        let operands = |registers: &[&Register]| {
            registers.iter().map(|register| format!("%{}", register.0)).collect::<Vec<_>>().join(" ")
        };
        match instruction {
            Instruction::Load { value, view, fill } => {
                write!(f, "load v{} {}", value.0, ViewText(view))?;
                if let Some(fill) = fill {
                    write!(f, " else {}", ScalarText(*fill))?;
                }
            }
            Instruction::Immediate(scalar) => write!(f, "{}", ScalarText(*scalar))?,
            Instruction::Index(view) => write!(f, "index {}", ViewText(view))?,
            Instruction::Random { key, stream, distribution, view } => {
                write!(f, "random {distribution:?} stream {stream} key v{} {}", key.0, ViewText(view))?;
            }
            Instruction::Accumulated => write!(f, "accumulated")?,
            Instruction::Product(number) => write!(f, "product {number}")?,
            Instruction::Unary(op, a) => write!(f, "{} {}", Op::Unary(*op).name(), operands(&[a]))?,
            Instruction::Binary(op, a, b) => write!(f, "{} {}", Op::Binary(*op).name(), operands(&[a, b]))?,
            Instruction::Select(condition, a, b) => write!(f, "select {}", operands(&[condition, a, b]))?,
        }
        writeln!(f, " : {dtype}")?;
    }
    for store in stores {
        writeln!(f, "    v{} <- %{}", store.value.0, store.register.0)?;
    }
    Ok(())
}

struct ViewText<'a>(&'a View);

impl fmt::Display for ViewText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:?}", self.0.offset, self.0.strides)?;
        self.0.bounds.iter().try_for_each(|bound| write!(f, " {}<=d{}<{}", bound.low, bound.dim, bound.high))
    }
}

struct ScalarText(Scalar);

impl fmt::Display for ScalarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Scalar::Float(value) => write!(f, "{value:?}"),
            Scalar::Int(value) => write!(f, "{value}"),
        }
    }
}
