//! Locking weights in memory, with and without leave to do so.

use std::os::unix::process::CommandExt;
use std::process::Command;

use llmrt_host::load::LoadMode;

use crate::setup::{FAR, NEAR};

#[test]
fn locking_covers_what_the_cpu_can_reach() {
    let setup = crate::pages();
    let bytes = 4 * (1024 + 3072 + 2048);
    for mode in [LoadMode::MmapMlock, LoadMode::ReadMlock] {
        let weights = setup.load(&setup.all_on(NEAR), mode).unwrap();
        assert_eq!(weights.warnings(), [""; 0]);
        assert!((bytes..bytes + 8192).contains(&weights.n_locked()), "{mode}: {}", weights.n_locked());
        assert_eq!(setup.load(&setup.all_on(FAR), mode).unwrap().n_locked(), 0);
    }
    assert_eq!(setup.load(&setup.all_on(NEAR), LoadMode::Mmap).unwrap().n_locked(), 0);
}

/// Runs itself as a process that may lock nothing, and there does the load.
#[test]
fn a_load_that_may_lock_nothing_warns_once_and_goes_on() {
    if memlock_limit() != 0 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "lock::a_load_that_may_lock_nothing_warns_once_and_goes_on", "--nocapture"]);
        // SAFETY: between fork and exec only two system calls are made.
        unsafe { child.pre_exec(forbid_locking) };
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }

    let setup = crate::pages();
    for mode in [LoadMode::MmapMlock, LoadMode::ReadMlock] {
        let weights = setup.load(&setup.all_on(NEAR), mode).unwrap();
        setup.assert_all_equal(&weights, NEAR);
        assert_eq!(weights.n_locked(), 0);
        let [warning] = weights.warnings() else { panic!("{:?}", weights.warnings()) };
        assert!(warning.contains("RLIMIT_MEMLOCK is 0 bytes: raise it with `ulimit -l"), "{warning}");
    }
}

fn memlock_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the struct that it is given.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) }, 0);
    limit.rlim_cur
}

/// No memory may be locked from the next `exec` on, not even by root.
fn forbid_locking() -> std::io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls change limits of this process only.
    let code = unsafe {
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0); // refused to users, who do not have it either
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &none)
    };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
