//! What the thread pool does where the system starts no more threads; alone in its file, because the limit on address
//! space is the process's.

#[allow(dead_code)] // one test needs no turns
mod fake;

use fake::scale_graph;
use llmrt_host::{Host, HostOptions, ThreadPool};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `body` where no mapping as large as a thread's stack is possible.
fn without_new_threads<T>(body: impl FnOnce() -> T) -> T {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and sets a limit of this process through structs that live during the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut before), 0);
        let now = libc::rlimit { rlim_cur: pages * 4096 + (1 << 20), ..before };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &now), 0);
    }
    let result = body();
    // SAFETY: as above.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &before), 0) };
    result
}

#[test]
fn a_run_goes_on_with_the_threads_that_start_and_a_failure_keeps_its_cause() {
    // A run inside a run starts threads of its own, or none.
    let pool = ThreadPool::new(3, Duration::from_micros(20));
    pool.run(3, &|team| team.barrier()).unwrap();
    let (sizes, members) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let result = without_new_threads(|| {
        pool.run(3, &|_| {
            pool.run(3, &|inner| {
                inner.barrier();
                members.fetch_add(1, SeqCst);
                if inner.index() == 0 {
                    sizes.lock().unwrap().push(inner.len());
                }
                inner.barrier();
            })
            .unwrap();
        })
    });
    result.unwrap();
    let sizes = sizes.into_inner().unwrap();
    assert_eq!(sizes.len(), 3);
    assert_eq!(sizes.iter().sum::<usize>(), members.into_inner(), "as many bodies as the teams have members");
    assert!(sizes.contains(&1), "no thread could start: {sizes:?}");

    // A run of a plugin that needs threads fails, and the log has why and what to do.
    let lines = Arc::new(Mutex::new(String::new()));
    let log = lines.clone();
    let log: llmrt_host::LogSink = Arc::new(move |_, _, text| log.lock().unwrap().push_str(text));
    let host = Host::new(HostOptions { n_threads: Some(2), log: Some(log), ..HostOptions::default() });
    host.register_builtin(fake::query).unwrap();
    let (graph, _buffer) = scale_graph(&host.device("fake:a").unwrap(), 2.0);
    let stream = host.device("fake:a").unwrap().stream(2).unwrap();
    let e = without_new_threads(|| stream.compute(&graph)).unwrap_err().to_string();
    let lines = lines.lock().unwrap().clone();
    assert!(lines.contains("thread 1 of 1 did not start") && lines.contains("LLMRT_THREADS"), "{e}\n{lines}");
    assert!(e.contains("the host's log has the cause"), "{e}");
    assert!(stream.compute(&graph).is_ok(), "the limit was lifted");
}
