//! Checks of a plugin's return values. Pure: values in, a violation's text out.

use llmrt_abi::{Reason, Scope, Status, types as c};

/// Calls that may return "not ready", and "plan stale".
const WAITS: [&str; 2] = ["query", "wait"];
const ON_PLANS: [&str; 3] = ["plan_create", "plan_update", "plan_compute"];

/// What is wrong with a status and the error that came with it.
pub(crate) fn status(call: &str, status: i32, err: &c::Error) -> Option<String> {
    if status == 0 {
        return None;
    }
    if !is_known(status, Status::TABLE) {
        return Some(format!("status {status} is none of the header's"));
    }
    let status = Status::from_code(status);
    if status == Status::NotReady && !WAITS.contains(&call) {
        return Some("NOT_READY is an answer of events".into());
    }
    if status == Status::PlanStale && !ON_PLANS.contains(&call) {
        return Some("PLAN_STALE is an answer of plans".into());
    }
    // A plugin need not fill the error.
    if err.code == 0 {
        return None;
    }
    if err.code != status.code() {
        return Some(format!("answered {}, and its error has {}", status.code(), err.code));
    }
    if !is_known(err.scope, Scope::TABLE) {
        return Some(format!("scope {} is none of the header's", err.scope));
    }
    let most = err.msg.len();
    if err.msg_len as usize > most {
        return Some(format!("a message of {} bytes; there are {most}", err.msg_len));
    }
    if std::str::from_utf8(err.message()).is_err() {
        return Some("its message is not UTF-8".into());
    }
    None
}

/// What is wrong with verdicts, or differs between two identical calls.
pub(crate) fn verdicts(first: &[c::Verdict], second: &[c::Verdict]) -> Option<String> {
    for (i, (v, again)) in first.iter().zip(second).enumerate() {
        if v.support > 3 {
            return Some(format!("verdict {i}: support {}; 0 to 3 are known", v.support));
        }
        if !is_known(v.reason, Reason::TABLE) {
            return Some(format!("verdict {i}: reason {} is none of the header's", v.reason));
        }
        if v.support == 0 && v.reason == Reason::None.code() {
            return Some(format!("verdict {i}: refused without a reason"));
        }
        if v.support != 0 && v.reason != Reason::None.code() {
            return Some(format!("verdict {i}: a yes with reason {}", v.reason));
        }
        if v.est_us.is_nan() {
            return Some(format!("verdict {i}: the estimate is not a number"));
        }
        if v != again {
            return Some(format!("verdict {i}: two calls, answered {v:?} and {again:?}"));
        }
    }
    None
}

/// What is wrong with free and total bytes.
pub(crate) fn memory(free: u64, total: u64) -> Option<String> {
    (free > total).then(|| format!("{free} bytes free of {total}"))
}

/// What is wrong with a layout that `seal` returned for a tensor of `nbytes` bytes and `n_rows` rows.
pub(crate) fn layout(l: &c::Layout, nbytes: u64, n_rows: u64) -> Option<String> {
    let has = |bit: u32| l.flags & bit != 0;
    let known = c::LAYOUT_INVERTIBLE | c::LAYOUT_OPAQUE | c::LAYOUT_ROW_SLICEABLE | c::LAYOUT_STORABLE;
    let unknown = l.flags & !known;
    if l.struct_size as usize != size_of::<c::Layout>() {
        return Some("changed the size of the layout it was given".into());
    }
    if unknown != 0 {
        return Some(format!("flags {unknown:#x} of the layout are none of the header's"));
    }
    if has(c::LAYOUT_INVERTIBLE) == has(c::LAYOUT_OPAQUE) {
        return Some("a layout is either INVERTIBLE or OPAQUE".into());
    }
    if l.layout_id == 0 && has(c::LAYOUT_OPAQUE) {
        return Some("layout 0 is GGUF's own and cannot be OPAQUE".into());
    }
    if l.stored_bytes == 0 {
        return Some(format!("a layout without bytes, of a tensor of {nbytes}"));
    }
    if has(c::LAYOUT_ROW_SLICEABLE) && !(1..=n_rows.max(1)).contains(&l.row_granularity) {
        return Some(format!("slices of {} rows, of a tensor with {n_rows}", l.row_granularity));
    }
    None
}

/// What is wrong with the node that a failure of `compute` names.
pub(crate) fn failed_node(status: Status, node: Option<u32>, n_nodes: usize) -> Option<String> {
    match node {
        Some(node) if node as usize >= n_nodes => Some(format!("names node {node} of {n_nodes}")),
        None if status == Status::Unsupported => {
            Some("answered UNSUPPORTED and does not name the node (`node_index`)".into())
        }
        _ => None,
    }
}

fn is_known<T: PartialEq>(code: T, table: &[(&str, T)]) -> bool {
    table.iter().any(|(_, known)| *known == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(complaint: Option<String>, words: &str) {
        let text = complaint.unwrap_or_default();
        assert!(if words.is_empty() { text.is_empty() } else { text.contains(words) }, "{text} / {words}");
    }

    #[test]
    fn a_status_is_known_and_fits_its_error() {
        let with = |code, scope, msg_len| c::Error { code, scope, msg_len, ..c::Error::empty() };
        check(status("set", 0, &with(3, 99, 999)), "");
        check(status("set", 77, &with(0, 0, 0)), "status 77 is none");
        check(status("compute", Status::NotReady.code(), &with(0, 0, 0)), "answer of events");
        check(status("wait", Status::NotReady.code(), &with(0, 0, 0)), "");
        check(status("set", Status::PlanStale.code(), &with(0, 0, 0)), "answer of plans");
        check(status("set", 10, &with(3, 0, 0)), "answered 10, and its error has 3");
        check(status("set", 10, &with(10, 4, 0)), "scope 4");
        check(status("set", 10, &with(10, 0, 217)), "217 bytes; there are 216");
        let mut broken = with(10, 0, 1);
        broken.msg[0] = 0xff;
        check(status("set", 10, &broken), "not UTF-8");
    }

    #[test]
    fn a_verdict_is_a_yes_or_a_no_with_a_reason_and_stays() {
        let yes = c::Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };
        let verdict = |v| verdicts(&[yes, v], &[yes, v]);
        check(verdict(yes), "");
        check(verdict(c::Verdict { support: 4, ..yes }), "verdict 1: support 4");
        check(verdict(c::Verdict { support: 0, reason: 1, ..yes }), "");
        check(verdict(c::Verdict { support: 0, ..yes }), "without a reason");
        check(verdict(c::Verdict { reason: 2, ..yes }), "a yes with reason 2");
        check(verdict(c::Verdict { support: 0, reason: 99, ..yes }), "reason 99");
        check(verdict(c::Verdict { est_us: f32::NAN, ..yes }), "not a number");
        check(verdicts(&[yes], &[c::Verdict { workspace: 8, ..yes }]), "two calls");
    }

    #[test]
    fn memory_and_layouts_make_sense() {
        check(memory(5, 5), "");
        check(memory(6, 5), "6 bytes free of 5");
        let l = c::Layout {
            struct_size: size_of::<c::Layout>() as u32,
            layout_id: 3,
            flags: c::LAYOUT_INVERTIBLE | c::LAYOUT_ROW_SLICEABLE,
            reserved: 0,
            stored_bytes: 64,
            row_granularity: 4,
            name: c::Str::EMPTY,
        };
        check(layout(&l, 64, 8), "");
        check(layout(&l, 64, 2), "slices of 4 rows");
        check(layout(&c::Layout { flags: 64, ..l }, 64, 8), "flags 0x40");
        check(layout(&c::Layout { flags: 3, ..l }, 64, 8), "either INVERTIBLE or OPAQUE");
        check(layout(&c::Layout { flags: 2, layout_id: 0, ..l }, 64, 8), "cannot be OPAQUE");
        check(layout(&c::Layout { stored_bytes: 0, ..l }, 64, 8), "without bytes");
        check(layout(&c::Layout { struct_size: 0, ..l }, 64, 8), "changed the size");
    }

    #[test]
    fn a_failed_node_is_there_and_a_refusal_names_one() {
        check(failed_node(Status::Internal, None, 3), "");
        check(failed_node(Status::Unsupported, Some(2), 3), "");
        check(failed_node(Status::Unsupported, None, 3), "does not name the node");
        check(failed_node(Status::Internal, Some(3), 3), "names node 3 of 3");
    }
}
