//! Cards and contexts. A thread has one context or none, and almost every call needs one.

use crate::config::Reach;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::runtime::queue::Stream;
use crate::runtime::stream::synchronize_device;
use crate::sys::*;
use crate::world::{World, api, put};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A card.
pub struct Card {
    /// Its number on the machine.
    pub number: u32,
    /// How often it was set and not reset.
    refs: u32,
    /// The handle of its default context; 0: none.
    primary: usize,
    /// After a kernel's fault.
    pub broken: Option<Fault>,
    /// Cards whose memory it reaches.
    pub peers: BTreeSet<usize>,
    /// Streams that live.
    pub n_streams: usize,
    /// Events that live.
    pub n_events: usize,
}

impl Card {
    /// A card that is not in use.
    pub fn new(number: u32) -> Card {
        Card { number, refs: 0, primary: 0, broken: None, peers: BTreeSet::new(), n_streams: 0, n_events: 0 }
    }
}

/// A context.
pub struct Context {
    /// Its handle.
    pub handle: usize,
    /// Its card.
    pub device: usize,
    /// Made by `aclrtSetDevice`.
    primary: bool,
    /// Made at first use.
    default_stream: Mutex<Option<Arc<Stream>>>,
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread's context.
pub fn current(w: &World) -> Answer<Arc<Context>> {
    let context = w.contexts.get(CURRENT.get());
    context.ok_or_else(|| Fault {
        code: ACL_ERROR_RT_CONTEXT_NULL,
        text: "the thread has no context: call aclrtSetDevice on it".into(),
    })
}

/// The stream that NULL stands for.
pub fn default_stream(w: &Arc<World>, context: &Context) -> Arc<Stream> {
    context.default_stream.lock().get_or_insert_with(|| Stream::start(w, context)).clone()
}

/// A card by number.
pub fn card(w: &World, device: i32) -> Answer<(usize, &Mutex<Card>)> {
    let at = usize::try_from(device).ok();
    let found = at.and_then(|at| Some((at, w.cards.get(at)?)));
    let problem = || format!("device {device} is none of {}", w.cards.len());
    found.ok_or_else(|| Fault { code: ACL_ERROR_RT_INVALID_DEVICEID, text: problem() })
}

api! { cann_acl;
    fn aclrtGetDeviceCount(count: *mut u32) w => {
        ensure(!w.cards.is_empty(), ACL_ERROR_RT_NO_DEVICE, || "no device is visible".into())?;
        put(count, w.cards.len() as u32)
    }
    /// The first makes the card's default context; each counts.
    fn aclrtSetDevice(device: i32) w => {
        let (at, card) = card(w, device)?;
        let mut card = card.lock();
        card.refs += 1;
        if card.primary == 0 {
            card.primary = create(w, at, true);
        }
        CURRENT.set(card.primary);
        Ok(())
    }
    /// The last waits for the card's work and ends its default context.
    fn aclrtResetDevice(device: i32) w => {
        let (at, card) = card(w, device)?;
        let primary = {
            let mut card = card.lock();
            ensure(card.refs > 0, ACL_ERROR_RT_PARAM_INVALID, || format!("device {device} is not set"))?;
            card.refs -= 1;
            if card.refs > 0 { return Ok(()) }
            std::mem::take(&mut card.primary)
        };
        // A failed kernel is no reason to keep the card.
        let _ = synchronize_device(w, at);
        if let Some(context) = w.contexts.remove(primary)
            && let Some(stream) = context.default_stream.lock().take()
        {
            stream.close();
        }
        {
            let mut card = card.lock();
            card.broken = None;
            card.peers.clear();
        }
        w.cards.iter().for_each(|card| _ = card.lock().peers.remove(&at));
        Ok(())
    }
    fn aclrtGetDevice(device: *mut i32) w => {
        put(device, current(w)?.device as i32)
    }
    fn aclrtCreateContext(context: *mut aclrtContext, device: i32) w => {
        let (at, _) = card(w, device)?;
        let handle = create(w, at, false);
        CURRENT.set(handle);
        put(context, handle as aclrtContext)
    }
    fn aclrtDestroyContext(context: aclrtContext) w => {
        let is_primary = w.contexts.get(context as usize).map(|context| context.primary);
        match is_primary {
            Some(false) => {}
            Some(true) => return fault(ACL_ERROR_RT_PARAM_INVALID, "the default context is not yours to destroy"),
            None => return fault(ACL_ERROR_RT_CONTEXT_NULL, "no such context"),
        }
        w.contexts.remove(context as usize);
        Ok(())
    }
    fn aclrtSetCurrentContext(context: aclrtContext) w => {
        let known = w.contexts.get(context as usize).is_some();
        ensure(known, ACL_ERROR_RT_CONTEXT_NULL, || "no such context".into())?;
        CURRENT.set(context as usize);
        Ok(())
    }
    fn aclrtGetCurrentContext(context: *mut aclrtContext) w => {
        put(context, current(w)?.handle as aclrtContext)
    }
    fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) w => {
        let ((a, _), (b, _)) = (card(w, device)?, card(w, peer)?);
        ensure(a != b, ACL_ERROR_RT_PARAM_INVALID, || "a device and itself".into())?;
        put(can, i32::from(w.config.peers != Reach::None && w.chip.peers))
    }
    fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) w => {
        let (this, (peer, _)) = (current(w)?.device, card(w, peer)?);
        ensure(flags == 0 && this != peer, ACL_ERROR_RT_PARAM_INVALID, || "flags, or the same device".into())?;
        let can = w.chip.peers
            && match w.config.peers {
                Reach::None => false,
                Reach::All => true,
                Reach::OneWay => this < peer,
            };
        ensure(can, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, || format!("card {this} cannot reach card {peer}"))?;
        w.cards[this].lock().peers.insert(peer);
        Ok(())
    }
    fn aclrtGetDeviceInfo(device: u32, attr: aclrtDevAttr, value: *mut i64) w => {
        card(w, device as i32)?;
        put(value, match attr {
            ACL_DEV_ATTR_AICORE_CORE_NUM => 20,
            ACL_DEV_ATTR_VECTOR_CORE_NUM => 40,
            ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE => w.config.memory as i64,
            _ => return fault(ACL_ERROR_INVALID_PARAM, format!("attribute {attr}")),
        })
    }
    fn aclrtDeviceGetUuid(device: i32, uuid: *mut aclrtUuid) w => {
        let (_, card) = card(w, device)?;
        let mut bytes = b"simulated card\0\0".map(|byte| byte as std::ffi::c_char);
        bytes[15] = card.lock().number as std::ffi::c_char;
        put(uuid, aclrtUuid { bytes })
    }
    fn aclrtCtxSetSysParamOpt(option: aclSysParamOpt, _value: i64) w => {
        current(w)?;
        ensure((0..=2).contains(&option), ACL_ERROR_INVALID_PARAM, || format!("option {option}"))
    }
}

fn create(w: &Arc<World>, device: usize, primary: bool) -> usize {
    w.contexts
        .insert_with(|handle| Arc::new(Context { handle, device, primary, default_stream: Mutex::default() }))
}

/// Which cards `ASCEND_RT_VISIBLE_DEVICES` leaves: numbers in ascending order; the first bad one ends the list.
pub fn visible(n: u32, list: Option<&str>) -> Vec<u32> {
    let Some(list) = list else { return (0..n).collect() };
    let mut chosen: Vec<u32> = Vec::new();
    for text in list.split(',') {
        match text.parse() {
            Ok(number) if number < n && chosen.last().is_none_or(|last| *last < number) => {
                chosen.push(number)
            }
            _ => break,
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_number_ends_the_list_of_visible_cards() {
        for (list, expected) in [
            ("1,3,8", vec![1, 3]),
            ("0, 2", vec![0]),
            ("2,1", vec![2]),
            ("1,1", vec![1]),
            ("", vec![]),
            ("0,1", vec![0, 1]),
        ] {
            assert_eq!(visible(8, Some(list)), expected, "{list}");
        }
        assert_eq!(visible(2, None), [0, 1]);
    }
}
