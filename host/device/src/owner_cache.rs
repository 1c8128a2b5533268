//! A cache of one value per owner of device memory, shared by all of the owner's programs.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::meter::Meter;

/// One value per owner, kept as long as one of the owner's programs holds it.
#[derive(Debug)]
pub struct PerOwner<T>(Mutex<Vec<(Meter, Weak<T>)>>);

impl<T> Default for PerOwner<T> {
    fn default() -> PerOwner<T> {
        PerOwner(Mutex::default())
    }
}

impl<T> PerOwner<T> {
    /// Returns the owner's value, and creates it if it is missing.
    pub fn get_or_create(&self, meter: &Meter, make: impl FnOnce(Meter) -> T) -> Arc<T> {
        let mut known = self.0.lock();
        known.retain(|(_, thing)| thing.strong_count() > 0);
        let found = known.iter().find(|(owner, _)| owner.is_same(meter)).and_then(|(_, thing)| thing.upgrade());
        found.unwrap_or_else(|| {
            let thing = Arc::new(make(meter.clone()));
            known.push((meter.clone(), Arc::downgrade(&thing)));
            thing
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_shares_one_value_while_it_is_held() {
        let things = PerOwner::default();
        let (one, other) = (Meter::unlimited(), Meter::unlimited());
        let first = things.get_or_create(&one, |_| 1);
        assert!(Arc::ptr_eq(&first, &things.get_or_create(&one.clone(), |_| 2)));
        assert_eq!(*things.get_or_create(&other, |_| 3), 3);
        drop(first);
        assert_eq!(*things.get_or_create(&one, |_| 4), 4, "nobody held the first");
    }
}
