//! The types that handlers return.

/// A handler, with the type that it returns. `Arguments` are those of [`Handler`](axum::handler::Handler).
pub(crate) trait HandlerOutput<Arguments> {
    /// The type that it returns.
    type Output;
}

macro_rules! impl_handler_output {
    ($($argument:ident),*) => {
        impl<F, Fut, M, $($argument,)*> HandlerOutput<(M, $($argument,)*)> for F
        where
            F: FnOnce($($argument),*) -> Fut,
            Fut: Future,
        {
            type Output = Fut::Output;
        }
    };
}

impl_handler_output!();
impl_handler_output!(A);
impl_handler_output!(A, B);
impl_handler_output!(A, B, C);
impl_handler_output!(A, B, C, D);
impl_handler_output!(A, B, C, D, E);
impl_handler_output!(A, B, C, D, E, G);
