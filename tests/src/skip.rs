//! Tests that cannot run here are counted.

use std::io::Write;

/// Notes that a test, or a part of one, cannot run for lack of something: prints it, and adds a line to the file that
/// `TESTS_SKIPPED` names, which `.ci/run` counts.
pub fn skipped(why: &str) {
    println!("skipped: {why}");
    if let Some(list) = std::env::var_os("TESTS_SKIPPED") {
        let mut list = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .expect("the list can be written");
        writeln!(list, "{why}").expect("the list can be written");
    }
}
