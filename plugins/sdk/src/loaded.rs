//! The predictor that this instance has loaded, for its HTTP handlers.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    /// An instance loads one.
    static LOADED: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
}

/// Calls `work` with the predictor that this instance has loaded.
///
/// # Panics
/// None was loaded, or one of another type.
pub(crate) fn with_loaded<P: 'static, T>(work: impl FnOnce(&P) -> T) -> T {
    let loaded = LOADED.with_borrow(|loaded| loaded.clone());
    match loaded.as_ref().and_then(|loaded| loaded.downcast_ref::<P>()) {
        Some(predictor) => work(predictor),
        None => panic!(
            "`export!(http: routes)` has routes of {}, which is not the exported predictor",
            std::any::type_name::<P>()
        ),
    }
}

/// Sets the predictor that this instance has loaded.
pub(crate) fn set_loaded(predictor: Rc<dyn Any>) {
    LOADED.set(Some(predictor));
}
