//! Text form of programs, for golden tests and for users: slabs, kernels, and the memory location of each value.

use std::fmt;

use saggar_tensor::op::Scalar;

use crate::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use crate::program::{ChannelLayout, FusedConsumer, Kernel, KernelBody, Program, ResultStore, ValueId, ValueLocation};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, slab) in self.slabs.iter().enumerate() {
            writeln!(f, "slab {at} {:?} {} bytes", slab.class, slab.bytes)?;
        }
        self.kernels.iter().try_for_each(|kernel| KernelText(self, kernel).fmt(f))
    }
}

impl Program {
    /// Formats one of this program's kernels: sizes, labels, operands and results with their locations, and the
    /// computation.
    pub fn kernel_text<'a>(&'a self, kernel: &'a Kernel) -> impl fmt::Display + 'a {
        KernelText(self, kernel)
    }
}

impl Program {
    /// Returns a text that identifies the computation of `kernel`, without value locations, prologue and epilogue.
    /// Kernels with equal texts take about the same time, so that tuning tables that outlive the program use it as a
    /// key.
    pub fn kernel_identity(&self, kernel: &Kernel) -> String {
        let (reads, writes) = (kernel.body.read_values(), kernel.body.written_values());
        let touched = reads.iter().take(2).chain(writes.iter().take(1));
        let touched: Vec<String> = touched.map(|value| self.values[value.index()].descriptor.to_string()).collect();
        format!("{} {} of {}", kernel.body.family(), format_geometry(&kernel.body), touched.join(", "))
    }
}

struct KernelText<'a>(&'a Program, &'a Kernel);

impl fmt::Display for KernelText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelText(program, kernel) = self;
        let values = |values: Vec<ValueId>| {
            values.into_iter().map(|value| ValueText(program, value).to_string()).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "{} {}", kernel.body.family(), format_geometry(&kernel.body))?;
        if let Some((_, label)) = kernel.label.split_once(": ") {
            writeln!(f, "  labels {label}")?;
        }
        let reads = kernel.body.read_values();
        if !reads.is_empty() {
            writeln!(f, "  reads {}", values(reads))?;
        }
        writeln!(f, "  writes {}", values(kernel.body.written_values()))?;
        write_exprs(f, &kernel.body)
    }
}

struct ValueText<'a>(&'a Program, ValueId);

impl fmt::Display for ValueText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.0.values[self.1.index()];
        write!(f, "v{}=", self.1.0)?;
        match value.place {
            ValueLocation::Input(at) => write!(f, "input:{}", self.0.inputs[at as usize].name),
            ValueLocation::Variable(at) => write!(f, "variable:{}", self.0.variables[at as usize].name),
            ValueLocation::Constant(at) => write!(f, "constant:{at}"),
            ValueLocation::Output(at) => match self.0.outputs.get(at as usize) {
                Some(port) => write!(f, "output:{}", port.name),
                None => write!(f, "output:{at}"),
            },
            ValueLocation::Slab { slab, offset_bytes } => write!(f, "slab:{slab}+{offset_bytes}"),
        }?;
        write!(f, " {}", value.descriptor)
    }
}

/// Formats sizes and options.
fn format_geometry(body: &KernelBody) -> String {
    match body {
        KernelBody::Map { dims, .. } => format!("{dims:?}"),
        KernelBody::Fold { kind, outer, inner, .. } => format!("{kind:?} {outer:?} over {inner:?}"),
        KernelBody::ArgFold { largest, dims, .. } => {
            format!("{} {dims:?}", if *largest { "largest" } else { "smallest" })
        }
        KernelBody::MatMul { sizes, transpose_a, transpose_b, batch_stride_a, batch_stride_b, .. } => {
            let [batch, m, n, k] = sizes;
            let turned = |turned: &bool| if *turned { "'" } else { "" };
            let (a, b) = (turned(transpose_a), turned(transpose_b));
            format!("{batch}x [{m}, {k}]{a} [{k}, {n}]{b} batch strides {batch_stride_a}, {batch_stride_b}")
        }
        KernelBody::Chain { dims, products, softmax, end, results, .. } => {
            let depths: Vec<usize> = products.iter().map(|product| product.depth).collect();
            let of = if softmax.is_some() { " softmax" } else { "" };
            let end = match end {
                FusedConsumer::Fold(kind) => format!("{kind:?}"),
                FusedConsumer::Product { turned: false, .. } => "product".to_owned(),
                FusedConsumer::Product { turned: true, .. } => "product'".to_owned(),
            };
            format!("{dims:?} of depths {depths:?}{of} {end} {results:?}")
        }
        KernelBody::Conv2d { conv, layout, result, .. } => format!("{result:?} {conv:?}{}", layout_suffix(*layout)),
        KernelBody::Conv2dInputGrad { conv, layout, .. } | KernelBody::Conv2dFilterGrad { conv, layout, .. } => {
            format!("{conv:?}{}", layout_suffix(*layout))
        }
        KernelBody::Pool2d { kind, pool, layout, .. } => format!("{kind:?} {pool:?}{}", layout_suffix(*layout)),
        KernelBody::MaxPool2dGrad { pool, layout, .. } | KernelBody::SumPool2dGrad { pool, layout, .. } => {
            format!("{pool:?}{}", layout_suffix(*layout))
        }
        KernelBody::Gather { dims, .. } | KernelBody::Scatter { dims, .. } => format!("{dims:?}"),
    }
}

/// Returns the text for a layout other than the default.
fn layout_suffix(layout: ChannelLayout) -> &'static str {
    match layout {
        ChannelLayout::ChannelsFirst => "",
        ChannelLayout::ChannelsLast => " channels last",
    }
}

fn write_exprs(f: &mut fmt::Formatter<'_>, body: &KernelBody) -> fmt::Result {
    match body {
        KernelBody::Map { expr, stores, .. } => write_expr(f, expr, stores),
        KernelBody::Fold { prologue, epilogue, .. } => {
            write_expr(f, prologue, &[])?;
            writeln!(f, "  then")?;
            write_expr(f, &epilogue.expr, &epilogue.stores)
        }
        KernelBody::Chain { link, epilogue, .. } => {
            write_expr(f, link, &[])?;
            writeln!(f, "  then")?;
            write_expr(f, &epilogue.expr, &epilogue.stores)
        }
        KernelBody::MatMul { epilogue, .. } | KernelBody::Conv2d { epilogue, .. } => {
            write_expr(f, &epilogue.expr, &epilogue.stores)
        }
        KernelBody::ArgFold { .. }
        | KernelBody::Conv2dInputGrad { .. }
        | KernelBody::Conv2dFilterGrad { .. }
        | KernelBody::Pool2d { .. }
        | KernelBody::MaxPool2dGrad { .. }
        | KernelBody::SumPool2dGrad { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => Ok(()),
    }
}

fn write_expr(f: &mut fmt::Formatter<'_>, expr: &ScalarExpr, stores: &[ResultStore]) -> fmt::Result {
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
            Instruction::Unary(op, a) => write!(f, "{} {}", op.name(), operands(&[a]))?,
            Instruction::Binary(op, a, b) => write!(f, "{} {}", op.name(), operands(&[a, b]))?,
            Instruction::Select(condition, a, b) => write!(f, "select {}", operands(&[condition, a, b]))?,
        }
        writeln!(f, " : {dtype}")?;
    }
    for store in stores {
        writeln!(f, "    v{} <- %{}", store.value.0, store.register.0)?;
    }
    Ok(())
}

struct ViewText<'a>(&'a AffineView);

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
