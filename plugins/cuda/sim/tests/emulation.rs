//! The emulation finds errors that a chip reports late or not at all, and passes correct kernels.

use cuda_simulator::emu::{kernels, run};
use cuda_simulator::space::Space;

/// Runs a kernel of emu/mistakes.cu on 64 floats; what was found.
fn ran(name: &str) -> Result<Vec<f32>, String> {
    let Some(kernel) = kernels().find(|kernel| kernel.name() == name) else {
        assert!(kernels().next().is_none(), "no kernel `{name}`");
        return Err("built without kernels".into());
    };
    let mut space = Space::default();
    let (before, at, after) = (space.alloc(0, 256), space.alloc(0, 72 * 4), space.alloc(0, 256));
    assert!(before < at && at < after);
    let params = [at.to_ne_bytes(), 72i64.to_ne_bytes()].concat();
    run(kernel, &params, [1, 1, 1], (kernel.max_threads, 0), &space)?;
    let (_, bytes) = space.bytes(at, 72 * 4).unwrap();
    // SAFETY: as many bytes, which no other code uses.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<f32>(), 72) }.to_vec())
}

fn check(name: &str, expected: &str) {
    match ran(name) {
        Err(found) if found == "built without kernels" => println!("skipped: no C++ compiler"),
        Err(found) => assert!(found.starts_with(name) && found.contains(expected), "{found}"),
        Ok(_) => panic!("{name} went unnoticed"),
    }
}

#[test]
fn global_memory_outside_of_an_allocation_is_found() {
    check("reads_past_the_end", "outside of the allocation");
    check("writes_before_the_start", "outside of the allocation");
    check("follows_no_address", "outside of the allocation");
    check("reads_at_an_odd_address", "no multiple of 4");
}

#[test]
fn shared_memory_that_was_not_written_or_is_not_there_is_found() {
    check("reads_what_was_not_written", "read before it was written");
    check("uses_too_much_shared_memory", "of shared memory");
    check("is_past_the_end_of_shared_memory", "element 32 of the 32");
}

#[test]
fn races_are_found() {
    check("leaves_a_barrier_out", "shared `room`");
    check("writes_where_another_writes", "is written while thread 0 writes it");
    check("writes_while_another_reads", "is written while thread 0 reads it");
}

#[test]
fn copies_that_were_not_waited_for_and_uneven_ones_are_found() {
    check("reads_before_its_copy_is_there", "is read before thread 0 waited for its copy");
    check("waits_for_an_older_copy", "`room`[256] is read before thread 0 waited for its copy");
    check("leaves_the_barrier_after_a_copy_out", "shared `room`");
    check("leaves_before_its_copy_is_there", "ends before its copies are there");
    check("copies_from_between", "no multiple of 16");
    check("loads_rows_from_between", "no multiple of 8");
}

#[test]
fn threads_that_wait_for_others_that_do_not_come_are_found() {
    check("some_wait_at_a_barrier", "32 wait at a barrier, 32 have ended");
    check("a_lane_is_missing", "wait for lanes of their warp that do not come");
}

#[test]
fn what_is_right_passes() {
    let Ok(found) = ran("is_right") else {
        assert!(kernels().next().is_none(), "{:?}", ran("is_right"));
        return;
    };
    let expected: Vec<f32> = (0..64).rev().map(|i| i as f32).collect();
    assert_eq!(found[..64], expected);
    // 1·2 - 1·3 + 2·4 + 3·5 + 7
    assert_eq!(found[64..68], [1.0, 496.0, 35.0, 29.0]);
}
