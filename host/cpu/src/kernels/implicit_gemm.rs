//! Implicit GEMM: convolutions in NHWC layout and their adjoints as products whose first operand is the image itself.
//! The row of an output place is gathered from the segments under its window, so no patch matrix is written.
//!
//! Only images that windows overlap are copied, band by band, with zero padding.

mod col2im;
mod filter_grad;
mod forward;
mod input_grad;
mod taps;
mod windowed_images;

pub(crate) use filter_grad::CpuFilterGradNhwc;
pub(crate) use forward::CpuConv2dNhwc;
pub(crate) use input_grad::CpuInputGradNhwc;
