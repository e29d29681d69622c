//! Cards that reach each other's memory.

use crate::runtime::{Runtime, acl};
use llmrt_plugin::{Error, Result, Scope};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Whether a card, the first number, could open access to another one's memory, or else why not.
#[derive(Default)]
pub struct Peers(Mutex<BTreeMap<(i32, i32), std::result::Result<(), String>>>);

impl Peers {
    /// Forgets a card's pairs: it is reset.
    pub fn forget(&self, device: i32) {
        self.0.lock().retain(|(a, b), _| *a != device && *b != device);
    }
}

impl Runtime {
    /// Lets two open cards read each other's memory; "unsupported" where they cannot. Access that one card opens is one-way (the
    /// vendor's page of aclrtDeviceEnablePeerAccess), so each opens its own. Enters one of the cards.
    pub fn connect(&self, a: i32, b: i32) -> Result<()> {
        self.open_pairs(&[(a, b), (b, a)])
    }

    /// Opens access of a card to another one's memory, and not of that to this.
    pub fn connect_one_way(&self, device: i32, peer: i32) -> Result<()> {
        self.open_pairs(&[(device, peer)])
    }

    fn open_pairs(&self, pairs: &[(i32, i32)]) -> Result<()> {
        let mut known = self.peers.0.lock();
        for (device, peer) in pairs.iter().copied() {
            let open = match known.get(&(device, peer)) {
                Some(open) => open.clone(),
                None => {
                    // Lost cards are an error; whatever else was answered, copies through the host are as good.
                    let open = match self.open_access(device, peer) {
                        Err(e) if e.scope != Scope::Call => return Err(e),
                        opened => opened.map_err(|e| e.message),
                    };
                    known.insert((device, peer), open.clone());
                    open
                }
            };
            open.map_err(|why| Error::unsupported(format!("card {device} cannot reach card {peer}: {why}")))?;
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
                return Err(Error::unsupported("the cards have no connection"));
            }
            acl!(self, aclrtDeviceEnablePeerAccess(peer, 0))
        }
    }
}
