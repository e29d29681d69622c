//! The simulated machine as text: `devices=2,memory=1g,queue=late`. Keys and values: the README's table.

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Config {
    /// Cards.
    pub devices: usize,
    /// Bytes of each.
    pub memory: usize,
    /// Major and minor, as in sm_90.
    pub capability: (i32, i32),
    /// Work runs only when a thread waits for it; otherwise at once.
    pub late: bool,
    /// Addresses and memory can be managed apart.
    pub vmm: bool,
    /// This allocation of device memory fails, from 1; 0: none.
    pub oom: u64,
    /// This kernel faults, from 1, and with which number.
    pub fault: (u64, i32),
    /// Kernels from this one on, from 1, take so many microseconds more; 0: none.
    pub slow: (u64, u64),
    /// The driver's version.
    pub version: i32,
    /// Images of kernels that the driver takes.
    pub takes: Takes,
    /// Cards reach each other's memory.
    pub peers: bool,
    /// The host has memory to pin.
    pub pinned: bool,
    /// This wait for a stream is refused, from 1; 0: none.
    pub wait: u64,
    /// The kernel of this name does nothing.
    pub idle: String,
    /// Launches of the kernel of this name are refused.
    pub refused: String,
    /// Multiprocessors of a card, as kernels' grids are chosen by.
    pub n_sms: i32,
    /// Kernels do not run: this file gets their launches. Empty: they run.
    pub launches: String,
    /// What becomes of products by cuBLASLt.
    pub products: Products,
}

/// What cuBLASLt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// All that it should.
    Works,
    /// It cannot be started.
    Closed,
    /// The heuristic finds no algorithm.
    Nothing,
    /// This product fails, from 1.
    Fails(u64),
}

/// Which images of kernels a driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All that are for its cards.
    All,
    /// PTX only.
    Ptx,
    /// What the emulated compiler makes only.
    Made,
    /// None.
    Nothing,
}

impl Config {
    /// Parses a text; invalid parts are reported on the error stream and left out.
    pub fn parse(text: &str) -> Config {
        let mut config = Config {
            devices: 1,
            memory: 4 << 30,
            capability: (9, 0),
            late: true,
            vmm: true,
            oom: 0,
            fault: (0, 700),
            slow: (0, 0),
            version: 12080,
            takes: Takes::All,
            peers: true,
            pinned: true,
            wait: 0,
            products: Products::Works,
            idle: String::new(),
            refused: String::new(),
            n_sms: 4,
            launches: String::new(),
        };
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            if config.set(pair).is_none() {
                eprintln!("LLMRT_CUDA_SIM: `{pair}` is unknown; see plugins/cuda/sim/README.md");
            }
        }
        config
    }

    fn set(&mut self, pair: &str) -> Option<()> {
        let (key, value) = pair.split_once('=')?;
        match key {
            "devices" => self.devices = value.parse().ok()?,
            "memory" => self.memory = bytes(value)?,
            "sm" => {
                let number: i32 = value.parse().ok()?;
                self.capability = (number / 10, number % 10);
            }
            "queue" => {
                self.late = match value {
                    "late" => true,
                    "now" => false,
                    _ => return None,
                }
            }
            "vmm" => self.vmm = value != "0",
            "peers" => self.peers = value != "0",
            "pinned" => self.pinned = value != "0",
            "wait" => self.wait = value.parse().ok()?,
            "oom" => self.oom = value.parse().ok()?,
            "fault" => {
                let (at, code) = value.split_once(':').unwrap_or((value, "700"));
                self.fault = (at.parse().ok()?, code.parse().ok()?);
            }
            "slow" => {
                let (from, micros) = value.split_once(':')?;
                self.slow = (from.parse().ok()?, micros.parse().ok()?);
            }
            "idle" => self.idle = value.into(),
            "refused" => self.refused = value.into(),
            "sms" => self.n_sms = value.parse().ok().filter(|n| *n > 0)?,
            "launches" => self.launches = value.into(),
            "version" => self.version = value.parse().ok()?,
            "cublas" => {
                self.products = match value {
                    "works" => Products::Works,
                    "closed" => Products::Closed,
                    "nothing" => Products::Nothing,
                    number => Products::Fails(number.parse().ok()?),
                }
            }
            "takes" => {
                self.takes = match value {
                    "all" => Takes::All,
                    "ptx" => Takes::Ptx,
                    "made" => Takes::Made,
                    "nothing" => Takes::Nothing,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// `64m`, `2g`, or bytes.
fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_shl(shift)
}
