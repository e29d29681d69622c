//! Hosts come and go on several threads and share one plugin.

use llmrt_host::{Host, HostOptions};

#[test]
fn a_host_opens_while_another_one_goes() {
    let open = || {
        for _ in 0..1500 {
            let host = Host::new(HostOptions::default());
            host.register_builtin(llmrt_cpu::query).unwrap();
            host.device("cpu").unwrap().memory().unwrap();
        }
    };
    std::thread::scope(|s| {
        (0..2).for_each(|_| {
            s.spawn(open);
        });
    });
}
