//! The `gemm` crate's matrix product on a separate thread pool, as a Rust program would call it.

/// The product `a b` of square, row-major matrices on a thread pool.
pub(crate) struct GemmProduct {
    pool: rayon::ThreadPool,
    threads: usize,
    n: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    pub(crate) c: Vec<f32>,
}

impl GemmProduct {
    /// Creates the thread pool.
    ///
    /// # Errors
    /// Returns an error if the threads cannot be started.
    pub(crate) fn new(threads: usize, n: usize, a: Vec<f32>, b: Vec<f32>) -> Result<GemmProduct, String> {
        assert!(a.len() == n * n && b.len() == n * n, "operands are n x n");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| error.to_string())?;
        Ok(GemmProduct { pool, threads, n, a, b, c: vec![0.0; n * n] })
    }

    #[expect(unsafe_code, reason = "the gemm crate takes pointers")]
    pub(crate) fn run(&mut self) {
        let GemmProduct { pool, threads, n, a, b, c } = self;
        let (n, row) = (*n, n.cast_signed());
        let parallelism = if *threads > 1 { gemm::Parallelism::Rayon(*threads) } else { gemm::Parallelism::None };
        // SAFETY: `new` asserts that both operands have `n * n` elements and allocates as many for the result, and
        // these sizes and strides reach no more. The result is borrowed mutably, so it overlaps neither operand.
        pool.install(|| unsafe {
            gemm::gemm(
                n,
                n,
                n,
                c.as_mut_ptr(),
                1,
                row,
                false,
                a.as_ptr(),
                1,
                row,
                b.as_ptr(),
                1,
                row,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        });
    }
}
