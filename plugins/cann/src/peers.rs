//! Cards that reach each other's memory.

use crate::runtime::{Runtime, acl};
use llmrt_plugin::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Pairs of cards with access to each other, the lower number first.
#[derive(Default)]
pub struct Peers(Mutex<BTreeSet<(i32, i32)>>);

impl Peers {
    /// Forgets a card's pairs: it is reset.
    pub fn forget(&self, device: i32) {
        self.0.lock().retain(|(a, b)| *a != device && *b != device);
    }
}

impl Runtime {
    /// Lets two open cards read each other's memory, once per pair; "unsupported" where they cannot. Access that one card
    /// opens is one-way (the vendor's page of aclrtDeviceEnablePeerAccess), so each opens its own. Enters one of the cards.
    pub fn connect(&self, a: i32, b: i32) -> Result<()> {
        let pair = (a.min(b), a.max(b));
        let mut known = self.peers.0.lock();
        if !known.contains(&pair) {
            self.open_access(a, b)?;
            self.open_access(b, a)?;
            known.insert(pair);
        }
        Ok(())
    }

    fn open_access(&self, device: i32, peer: i32) -> Result<()> {
        self.enter(device)?;
        let mut can = 0;
        // SAFETY: the output is ours; the card is entered.
        unsafe {
            acl!(self, aclrtDeviceCanAccessPeer(&mut can, device, peer))?;
            if can == 0 {
                return Err(Error::unsupported(format!("card {device} cannot reach card {peer}")));
            }
            acl!(self, aclrtDeviceEnablePeerAccess(peer, 0))
        }
    }
}
