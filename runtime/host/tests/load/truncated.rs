//! A model file that another program truncates while it is mapped: an error, not the end of the process by SIGBUS.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use llmrt_abi::DType;
use llmrt_graph::Graph;
use llmrt_graph::tensor::Role;
use llmrt_host::load::LoadMode;
use llmrt_host::load::mapping::{Mapping, ReadAhead};
use llmrt_host::load::read::OpenFile;
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::{Error, Result};

use crate::pages;
use crate::setup::{NEAR, Setup, device};
use crate::testing::data;

/// An executor with all weights on the device that uses them in place, and a graph that copies the weight `c`.
fn executor(setup: Setup, mode: LoadMode) -> (impl FnMut() -> Result<Vec<u8>>, std::fs::File) {
    let mut g = Graph::new();
    let c = g.weight("c", DType::F32, &[2048], Role::Other);
    let y = g.cont(c);
    g.output(y, "y");
    let program = Program::new(g.finish().unwrap());

    let weights = setup.load(&setup.all_on(NEAR), mode).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&setup.path).unwrap();
    let (devices, files) = (vec![device(NEAR)], Arc::new(setup.files));
    let executor = Executor::new(devices, files, weights, HashMap::new(), 1, Default::default());
    let mut executor = executor.unwrap();
    let run = move || {
        executor.run(&program, &[])?;
        Ok(executor.output(&program, y)?.into_owned())
    };
    (run, file)
}

#[test]
fn a_run_over_a_truncated_file_is_an_error_with_name_lengths_and_remedy() {
    for mode in [LoadMode::Mmap, LoadMode::MmapMlock] {
        let setup = pages();
        let len = setup.files.file_bytes();
        let expected = format!(
            "{}: the file was truncated while it was in use: 100 bytes, {len} when it was opened; restore the file and \
             start again, or use `--load-mode none` for files that change",
            setup.path.display()
        );
        let (mut run, file) = executor(setup, mode);
        assert_eq!(run().unwrap(), data(2, 2048));

        file.set_len(100).unwrap();
        for _ in 0..2 {
            let e = run().unwrap_err();
            assert!(matches!(e, Error::ModelFile { .. }) && e.to_string() == expected, "{mode}: {e}");
        }
        file.set_len(len).unwrap();
        assert!(matches!(run(), Err(Error::ModelFile { .. })), "{mode}: the pages are not read again");
    }
}

#[test]
fn a_file_that_is_read_rather_than_mapped_may_be_truncated() {
    let (mut run, file) = executor(pages(), LoadMode::Read);
    file.set_len(100).unwrap();
    assert_eq!(run().unwrap(), data(2, 2048));
}

#[test]
fn a_file_that_grows_has_lost_nothing() {
    let setup = pages();
    let len = setup.files.file_bytes();
    let (mut run, file) = executor(setup, LoadMode::Mmap);
    file.set_len(len + 5000).unwrap();
    assert_eq!(run().unwrap(), data(2, 2048));
}

/// Runs itself as a process that installs `handler` for SIGBUS, maps a model, and then gets a SIGBUS. `None`: the handler
/// of the standard library. Returns `None` in that process.
fn check_other(name: &str, handler: Option<libc::sighandler_t>, raise: fn()) -> Option<ExitStatus> {
    if std::env::var("SIGBUS_TEST").is_err() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &format!("truncated::{name}"), "--nocapture", "--test-threads=1"]);
        return Some(child.env("SIGBUS_TEST", "1").output().unwrap().status);
    }
    // SAFETY: a handler that may be called at any time, or one of the constants; no core file is written.
    unsafe {
        handler.map(|handler| libc::signal(libc::SIGBUS, handler));
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    }
    let setup = pages();
    let file = OpenFile::open(&setup.path).unwrap();
    let ahead = ReadAhead { prefetch: 0, random: false };
    let _mapping = Mapping::whole(&file, ahead, &mut Vec::new()).unwrap();
    raise();
    None
}

/// Reads a page of a file of no bytes, mapped by this test alone.
fn read_lost_page() {
    let file = tempfile::tempfile().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a new mapping, of which the page is read that the file lacks; that raises SIGBUS.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::hint::black_box(at.cast::<u8>().read_volatile());
    }
}

fn send_sigbus() {
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
}

extern "C" fn exit_with_42(_signal: libc::c_int) {
    // SAFETY: ends the process, which a handler may do.
    unsafe { libc::_exit(42) }
}

const EXIT_WITH_42: extern "C" fn(libc::c_int) = exit_with_42;

#[test]
fn a_lost_page_of_other_memory_goes_to_the_handler_installed_before() {
    let name = "a_lost_page_of_other_memory_goes_to_the_handler_installed_before";
    let status = check_other(name, Some(EXIT_WITH_42 as libc::sighandler_t), read_lost_page);
    assert_eq!(status.unwrap().code(), Some(42));
}

#[test]
fn a_lost_page_of_other_memory_ends_the_process_without_a_handler() {
    let name = "a_lost_page_of_other_memory_ends_the_process_without_a_handler";
    let status = check_other(name, Some(libc::SIG_DFL), read_lost_page);
    assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
}

#[test]
fn a_lost_page_of_other_memory_ends_the_process_with_the_standard_handler() {
    let name = "a_lost_page_of_other_memory_ends_the_process_with_the_standard_handler";
    let status = check_other(name, None, read_lost_page);
    assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
}

#[test]
fn a_sigbus_that_is_sent_ends_the_process() {
    let status = check_other("a_sigbus_that_is_sent_ends_the_process", Some(libc::SIG_DFL), send_sigbus);
    assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
}

#[test]
fn a_sigbus_that_is_sent_and_was_ignored_stays_ignored() {
    let name = "a_sigbus_that_is_sent_and_was_ignored_stays_ignored";
    if let Some(status) = check_other(name, Some(libc::SIG_IGN), send_sigbus) {
        assert!(status.success(), "{status}");
    }
}
