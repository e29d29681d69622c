//! A plugin that panics is never called again in its process; alone in its file, because it stays broken.

mod fake;

use fake::{scale_graph, with_device};
use llmrt_abi::Scope;
use llmrt_host::{DeviceState, Error, Host, HostOptions};

#[test]
fn a_panic_in_a_kernel_ends_the_plugin_and_nothing_else() {
    with_device(|host, device| {
        let (graph, buffer) = scale_graph(device, 666.0);
        let e = device.stream(2).unwrap().compute(&graph).unwrap_err();
        assert!(e.to_string().contains("the devil's number"), "{e}");
        assert_eq!(e.scope(), Scope::Plugin);
        let other = host.device("fake:b").unwrap();
        assert!(matches!(other.state(), DeviceState::Quarantined(_)));
        assert!(matches!(buffer.read(0, &mut [0]), Err(Error::Quarantined { .. })));
        assert!(host.threads().run(2, &|team| team.barrier()).is_ok(), "the host's threads still work");
    });
    let e = Host::new(HostOptions::default()).register_builtin(fake::query).unwrap_err().to_string();
    assert!(e.contains("quarantined in this process after: fake:a: compute answered Internal"), "{e}");
}
