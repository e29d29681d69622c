//! L0: the plugin loads, describes itself consistently, and starts again after it was shut down.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, wrong};
use crate::raw;
use crate::session::{Session, fresh_host};
use llmrt_abi::op::AttentionParams;
use llmrt_abi::{DType, types as c};
use llmrt_graph::{Graph, Paged, Role};
use llmrt_host::{Device, DeviceState, Probe};
use std::sync::Arc;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("the load checklist lets it in", loads),
    ("query gives the same table twice", query_twice),
    ("a host of a later minor version is served", later_host),
    ("unknown extension names give NULL", unknown_extensions),
    ("manifest and table name a version and a vendor", texts),
    ("every device opens and passes its self-test", devices_open),
    ("buffer types are numbered and of known kinds", buffer_types),
    ("attention takes blocks of the size that the device prefers", block_sizes),
    ("capabilities are kept", capabilities),
    ("free memory is at most the total", memory),
    ("it starts again after shutdown, with the same devices", init_again),
    ("two hosts of one process share it", two_hosts),
    ("it installs no signal handler", signals),
];

fn loads(session: &mut Session) -> Verdict {
    session.host().map(drop)
}

fn probe(session: &Session) -> Verdict<Probe> {
    Probe::of_file(&session.options.plugin).or_else(wrong)
}

fn query_twice(session: &mut Session) -> Verdict {
    insist(probe(session)?.same_table, || "two calls of the entry gave different tables".into())
}

fn later_host(session: &mut Session) -> Verdict {
    insist(probe(session)?.serves_later_hosts, || {
        "NULL for a host whose minor version is 1000 later; a later minor only adds".into()
    })
}

fn unknown_extensions(session: &mut Session) -> Verdict {
    let given = probe(session)?.unknown_extensions;
    insist(given.is_empty(), || format!("gave tables for {}; expected NULL", given.join(", ")))
}

fn texts(session: &mut Session) -> Verdict {
    let host = session.host()?;
    for plugin in host.plugins_in_use() {
        insist(!plugin.version.is_empty(), || "the version is empty".into())?;
        insist(!plugin.vendor.is_empty(), || "the vendor is empty".into())?;
    }
    for device in host.devices() {
        insist(!device.info().name.is_empty(), || "a device's name is empty".into())?;
        insist(!device.info().description.is_empty(), || format!("{}: no description", device.name()))?;
    }
    Ok(())
}

fn devices_open(session: &mut Session) -> Verdict {
    for device in session.host()?.devices() {
        device.open()?;
        let state = device.state();
        insist(state == DeviceState::Open, || format!("{} is {state:?}", device.name()))?;
    }
    session.device().map(drop)
}

fn buffer_types(session: &mut Session) -> Verdict {
    for device in session.host()?.devices() {
        let info = device.info();
        for (i, bt) in info.buffer_types.iter().enumerate() {
            let which = || format!("{}, buffer type {i} `{}`", device.name(), bt.name);
            insist(bt.kind <= c::BUFFER_REPACKED, || format!("{}: kind {} is unknown", which(), bt.kind))?;
            insist(!bt.name.is_empty(), || format!("{}: it has no name", which()))?;
        }
        let weights_only = info.buffer_types[0].flags & c::BT_WEIGHTS_ONLY != 0;
        insist(!weights_only, || format!("{}: buffer type 0 is for weights only", device.name()))?;
        insist(info.kind <= c::DEVICE_ACCEL, || format!("{}: kind {} is unknown", device.name(), info.kind))?;
    }
    Ok(())
}

/// A device that prefers a size of blocks gets caches of F16 in such blocks, of whole models. Sizes that no cache has are
/// refused by the load checklist.
fn block_sizes(session: &mut Session) -> Verdict {
    for device in session.host()?.devices().iter().filter(|device| device.info().kv_block_size > 0) {
        let size = u64::from(device.info().kv_block_size);
        for n_tokens in [1, 100] {
            let graph = attention(size, n_tokens);
            let verdicts = device.supports(&raw::unbound(&graph, &raw::nodes(&graph))?, 0..1)?;
            insist(verdicts[0].support != 0, || {
                let reason = verdicts[0].reason;
                format!("{}: {n_tokens} tokens over blocks of {size}: reason {reason}", device.name())
            })?;
        }
    }
    Ok(())
}

/// Attention of one sequence over two blocks of so many slots.
fn attention(block_size: u64, n_tokens: u64) -> Graph {
    let mut g = Graph::new();
    let q = g.input("q", DType::F32, &[64, 4, n_tokens]);
    let k = g.state("k", DType::F16, &[128, 4 * block_size], Role::KCache);
    let v = g.state("v", DType::F16, &[128, 4 * block_size], Role::VCache);
    let paged = Paged {
        block_table: g.input("block_table", DType::I32, &[2, 1]),
        seq_lens: g.input("seq_lens", DType::I32, &[1]),
        query_starts: g.input("query_starts", DType::I32, &[2]),
    };
    let block_size = block_size as u32;
    let p = AttentionParams { n_kv_heads: 2, block_size, scale: 0.125, ..Default::default() };
    let y = g.attention(q, k, v, &paged, &p);
    g.output(y, "y");
    g
}

/// Capability bits agree with the functions.
fn capabilities(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let caps = device.info().caps;
    let stream = device.stream(0)?;
    insist(caps & c::CAP_PLAN == 0 || stream.has_plans(), || {
        "the device claims plans, and its streams have no plan_create".into()
    })?;
    let buffer = device.alloc(0, 4096, c::USAGE_ANY)?;
    let pointer = device.info().buffer_types[0].flags & c::BT_HOST_PTR != 0;
    insist(!pointer || buffer.host_ptr().is_some(), || {
        "buffer type 0 claims host pointers, and a buffer of it gives none".into()
    })?;
    insist(caps & c::CAP_EVENTS == 0 || device.event()?.is_native(), || {
        "the device claims events, and makes none".into()
    })
}

fn memory(session: &mut Session) -> Verdict {
    let (free, total) = session.device()?.memory()?;
    insist(free <= total, || format!("{free} bytes free of {total}"))
}

fn init_again(session: &mut Session) -> Verdict {
    let names = |session: &mut Session| -> Verdict<Vec<String>> {
        use_device(session)?;
        Ok(session.host()?.devices().iter().map(|d| d.name().to_string()).collect())
    };
    let before = names(session)?;
    for round in 0..3 {
        session.close();
        let after = names(session).map_err(|t| t.during("after shutdown and init"))?;
        insist(before == after, || format!("round {round}: devices {after:?}, before {before:?}"))?;
    }
    Ok(())
}

fn two_hosts(session: &mut Session) -> Verdict {
    use_device(session)?;
    let other = fresh_host(&session.options)?;
    for device in other.devices() {
        touch(&device).map_err(|t| t.during("through the second host"))?;
    }
    session.close();
    other.devices().iter().try_for_each(|d| touch(d).map_err(|t| t.during("after the first host went")))
}

fn signals(session: &mut Session) -> Verdict {
    use_device(session)?;
    let (before, after) = (session.signals_at_start, crate::session::caught_signals());
    insist(before == after, || {
        format!("signals caught by this process: mask {before:#x} before, {after:#x} with the plugin in use")
    })
}

/// Opens the device and moves some bytes.
pub fn use_device(session: &mut Session) -> Verdict {
    touch(&session.device()?)
}

fn touch(device: &Arc<Device>) -> Verdict {
    let buffer = device.alloc(0, 256, c::USAGE_ANY)?;
    let bytes: Vec<u8> = (0..=255).collect();
    buffer.write(0, &bytes)?;
    let mut back = vec![0; 256];
    buffer.read(0, &mut back)?;
    insist(bytes == back, || "256 bytes did not come back as they were written".into())
}
