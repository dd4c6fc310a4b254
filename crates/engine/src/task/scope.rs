//! What the actions of one run have in common: turns, downloads, keys that were opened. It is gone with the run.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

type Value = dyn Any + Send + Sync;

/// Values by their type and a name, such as that of a cluster. A module has a type of its own for each purpose.
#[derive(Default)]
pub struct RunScope {
    kept: Mutex<HashMap<(TypeId, String), Arc<Value>>>,
    used: Mutex<HashMap<(TypeId, String), Weak<Value>>>,
}

impl RunScope {
    /// The value of this name, the same for the whole run.
    pub fn kept<T: Default + Send + Sync + 'static>(&self, name: &str) -> Arc<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let value = kept.entry((TypeId::of::<T>(), name.to_owned())).or_insert_with(|| Arc::<T>::default());
        // The key has its type.
        value.clone().downcast().unwrap_or_default()
    }

    /// The value of this name, the same for all that use it at the same time. It goes away with the last of them.
    pub fn used<T: Default + Send + Sync + 'static>(&self, name: &str) -> Arc<T> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, value| value.strong_count() > 0);
        let key = (TypeId::of::<T>(), name.to_owned());
        if let Some(value) = used.get(&key).and_then(Weak::upgrade).and_then(|value| value.downcast().ok()) {
            return value;
        }
        let value = Arc::<T>::default();
        let any: Arc<Value> = value.clone();
        used.insert(key, Arc::downgrade(&any));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct One(Mutex<u8>);

    #[derive(Default)]
    struct Other(Mutex<u8>);

    #[test]
    fn a_run_keeps_its_values_and_shares_them_with_no_other() {
        let (run, another) = (RunScope::default(), RunScope::default());
        *run.kept::<One>("prod").0.lock().unwrap() = 1;
        assert_eq!(*run.kept::<One>("prod").0.lock().unwrap(), 1);
        assert_eq!(*run.kept::<One>("test").0.lock().unwrap(), 0);
        assert_eq!(*run.kept::<Other>("prod").0.lock().unwrap(), 0);
        assert_eq!(*another.kept::<One>("prod").0.lock().unwrap(), 0);
    }

    #[test]
    fn what_is_used_at_the_same_time_is_shared_while_it_is_used() {
        let run = RunScope::default();
        let first = run.used::<One>("a");
        assert!(Arc::ptr_eq(&first, &run.used::<One>("a")));
        assert!(!Arc::ptr_eq(&first, &run.used::<One>("b")));
        *first.0.lock().unwrap() = 1;
        drop(first);
        assert_eq!(*run.used::<One>("a").0.lock().unwrap(), 0);
    }
}
