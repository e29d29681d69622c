//! Rule 27: which functions are in which library, and what is missing where.

use cann_simulator::door::tables;
use cann_simulator::sys::*;

/// Names of functions that a table has no address for.
fn missing<T: Functions>(table: &T) -> Vec<&'static str> {
    // SAFETY: `Functions` promises as many pointer fields as names.
    let fields =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(table).cast::<usize>(), T::NAMES.len()) };
    T::NAMES.iter().zip(fields).filter(|(_, field)| **field == 0).map(|(name, _)| *name).collect()
}

#[test]
fn every_function_of_the_header_is_simulated() {
    let t = tables();
    let lacks = [
        missing(&t.acl),
        missing(&t.object),
        missing(&t.math),
        missing(&t.nn),
        missing(&t.cv),
        missing(&t.transformer),
    ];
    assert_eq!(lacks.concat(), [""; 0]);
}
