//! The `gemm` crate's matrix product on threads of its own, as a Rust program would call it.

/// `a b` of square matrices, row-major, on a pool of threads.
pub(crate) struct GemmProduct {
    pool: rayon::ThreadPool,
    threads: usize,
    n: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    pub(crate) c: Vec<f32>,
}

impl GemmProduct {
    /// # Errors
    /// No threads.
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
        // SAFETY: `new` has asserted that both operands have `n * n` elements and makes the result of as many, which is
        // all that these sizes and strides reach; the result is borrowed alone, so it overlaps neither.
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
