//! What the simulated machine is, from one environment variable: `LLMRT_CANN_SIM="soc=Ascend310P3,queue=delay,seed=7"`.
//!
//! The simulator stands in for hardware, so it reads its own environment, once; no other part of llmrt does.

use crate::release::Release;
use crate::sys::aclDataType;

/// When enqueued work runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Before the call that enqueues it returns.
    Now,
    /// After a random time.
    Delay,
    /// When a thread waits for it, and not before.
    Sync,
}

/// What an asynchronous copy does with host memory that is not pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pageable {
    /// It returns after the copy.
    Block,
    /// It takes the bytes when it is called.
    Snapshot,
    /// It answers 107017, as older drivers do for mapped files.
    Refuse,
}

/// The driver's virtual memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vmm {
    /// There is none.
    Absent,
    /// The flag of reserved addresses is the size of pages: 0 normal, 1 huge (acl_rt.h of CANN 8.1); huge pages are mapped to
    /// addresses reserved for them.
    Paged,
    /// Flags are reserved, and 0, as in older releases.
    NoFlags,
    /// Addresses are given, and nothing can be mapped to them.
    Unmappable,
}

/// Which cards reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// None.
    None,
    /// All.
    All,
    /// All claim to, and cards with a lower number alone open access to the others.
    OneWay,
}

/// The simulated machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Name of the chip; empty: the name is not known.
    pub soc: String,
    /// The libraries' release.
    pub release: Release,
    /// Cards.
    pub devices: u32,
    /// When enqueued work runs.
    pub queue: Queue,
    /// Of everything random.
    pub seed: u64,
    /// Bytes of each card.
    pub memory: u64,
    /// A file for a line per call; empty: none.
    pub trace: String,
    /// Doubtful use is an error, and not only reported.
    pub strict: bool,
    /// Operators by the vendor's table of chips only, and not by what is known to work.
    pub documented: bool,
    /// What pageable memory does.
    pub pageable: Pageable,
    /// The driver's virtual memory; none: as the release has it.
    pub vmm: Option<Vmm>,
    /// Which cards reach each other.
    pub peers: Reach,
    /// Operators that take lists of numbers may be launched more than once.
    pub repeatable: bool,
    /// An operator that is planned again with the same parameters requests a larger workspace.
    pub grow: bool,
    /// An operator whose first phase is refused, with tensors of one type or of any, and the code it answers; an empty name:
    /// none.
    pub refuse: (String, Option<aclDataType>, i32),
    /// No communicator is formed.
    pub hccl_refuses: bool,
    /// The call of a collective that fails: which rank's, and its number from 1.
    pub hccl_fails: Option<(usize, u64)>,
    /// This allocation of device memory, from 1, fails; 0: none.
    pub oom: u64,
    /// This kernel that runs, from 1, faults; 0: none.
    pub fault: u64,
    /// Kernels from this one on, from 1, take so many microseconds more; 0: none.
    pub slow: (u64, u64),
    /// What new memory and workspaces hold.
    pub poison: u8,
    /// A kernel's fault makes its card unusable until it is reset.
    pub sticky: bool,
    /// Streams and events of a card; 0: as the chip has.
    pub streams: usize,
    /// As above.
    pub events: usize,
    /// Commands that a stream holds before the next call waits.
    pub depth: u64,
    /// Seconds after which a wait gives up.
    pub watchdog: u64,
    /// Rules that this machine does not keep, of [`RULES`].
    pub broken: Vec<&'static str>,
    /// Kernels with these layouts of weights, `+` between them, that take so many microseconds more; none: empty.
    pub slower: (String, u64),
}

/// Rules that can be broken, one by one, to see that it is noticed.
pub const RULES: [&str; 19] = [
    // No executor may be repeated; those from the library's cache may; those that write in place may.
    "repeats",
    "cache",
    "in-place",
    // Sorts of one number, and F32 sorts and largest numbers, run where they do not.
    "sort-one",
    "sort-f32",
    // Results of products are rounded where they are not, or not where they are: of F32 rows for F16 weights, of F16, BF16, of
    // several matrices, and of NZ weights.
    "use-fp16",
    "f16-out",
    "bf16-out",
    "batch-out",
    "nz-out",
    // NZ weights: views that are turned around are read as if they were not; results are wrong.
    "nz-turned",
    "nz-right",
    // Weights of few bits that are not turned around: refused; results are wrong.
    "columns",
    "columns-right",
    // Products with NZ weights, or with weights of few bits that are not turned around, take rows of more than 256.
    "large",
    // Scales of experts' weights need offsets; an expert's scales are those of its place.
    "offsets",
    // Copies with pageable memory are not captured.
    "pageable-capture",
    // Both of two cards open access.
    "peers",
    // Weights of few bits have a scale per group of 32.
    "groups",
];

impl Default for Config {
    fn default() -> Config {
        Config {
            soc: "Ascend910B3".into(),
            release: Release::V9_1,
            devices: 1,
            queue: Queue::Delay,
            seed: 1,
            memory: 4 << 30,
            trace: String::new(),
            strict: true,
            documented: false,
            pageable: Pageable::Block,
            vmm: None,
            peers: Reach::All,
            repeatable: true,
            grow: false,
            refuse: (String::new(), None, 0),
            hccl_refuses: false,
            hccl_fails: None,
            oom: 0,
            fault: 0,
            slow: (0, 0),
            poison: 0xff,
            sticky: true,
            streams: 0,
            events: 0,
            depth: 4096,
            watchdog: 60,
            broken: Vec::new(),
            slower: (String::new(), 0),
        }
    }
}

impl Config {
    /// Reads `key=value,key=value`; the error names what is wrong.
    pub fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or(format!("`{part}` is no key=value"))?;
            config.set(key, value).ok_or(format!("`{part}` is not understood"))?;
        }
        Ok(config)
    }

    /// Whether the machine keeps a rule.
    pub fn keeps(&self, rule: &str) -> bool {
        debug_assert!(RULES.contains(&rule), "{rule} is no rule");
        !self.broken.contains(&rule)
    }

    /// The driver's virtual memory.
    pub fn vmm(&self) -> Vmm {
        self.vmm.unwrap_or(self.release.vmm())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let flag = || match value {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        match key {
            "soc" => self.soc = value.into(),
            "release" => self.release = Release::of(value)?,
            "devices" => self.devices = value.parse().ok()?,
            "queue" => {
                self.queue = match value {
                    "now" => Queue::Now,
                    "delay" => Queue::Delay,
                    "sync" => Queue::Sync,
                    _ => return None,
                }
            }
            "seed" => self.seed = value.parse().ok()?,
            "memory" => self.memory = bytes(value)?,
            "trace" => self.trace = value.into(),
            "strict" => self.strict = flag()?,
            "documented" => self.documented = flag()?,
            "pageable" => {
                self.pageable = match value {
                    "block" => Pageable::Block,
                    "snapshot" => Pageable::Snapshot,
                    "refuse" => Pageable::Refuse,
                    _ => return None,
                }
            }
            "vmm" => {
                self.vmm = Some(match value {
                    "0" => Vmm::Absent,
                    "1" => Vmm::Paged,
                    "no-flags" => Vmm::NoFlags,
                    "unmappable" => Vmm::Unmappable,
                    _ => return None,
                })
            }
            "peers" => {
                self.peers = match value {
                    "0" => Reach::None,
                    "1" => Reach::All,
                    "one-way" => Reach::OneWay,
                    _ => return None,
                }
            }
            "repeatable" => self.repeatable = flag()?,
            "grow" => self.grow = flag()?,
            "refuse" => {
                let (which, code) = value.split_once(':')?;
                let (name, dtype) = match which.split_once('@') {
                    Some((name, dtype)) => (name, Some(dtype.parse().ok()?)),
                    None => (which, None),
                };
                self.refuse = (name.into(), dtype, code.parse().ok()?);
            }
            "hccl" => match value.split_once('@') {
                Some(("fail", at)) => {
                    let (rank, number) = at.split_once(':')?;
                    self.hccl_fails = Some((rank.parse().ok()?, number.parse().ok()?));
                }
                _ => self.hccl_refuses = !flag()?,
            },
            "oom" => self.oom = value.parse().ok()?,
            "fault" => self.fault = value.parse().ok()?,
            "slow" => {
                let (from, micros) = value.split_once(':')?;
                self.slow = (from.parse().ok()?, micros.parse().ok()?);
            }
            "poison" => self.poison = u8::from_str_radix(value, 16).ok()?,
            "sticky" => self.sticky = flag()?,
            "streams" => self.streams = value.parse().ok()?,
            "events" => self.events = value.parse().ok()?,
            "depth" => self.depth = value.parse().ok().filter(|n| *n > 0)?,
            "watchdog" => self.watchdog = value.parse().ok()?,
            "broken" => {
                let rule = |name: &str| RULES.into_iter().find(|rule| *rule == name);
                self.broken = value.split('+').map(rule).collect::<Option<_>>()?;
            }
            "slower" => {
                let (layout, micros) = value.split_once(':')?;
                self.slower = (layout.into(), micros.parse().ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// A number with the suffix k, m or g.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_in_one_line() {
        let config = Config::parse("soc=Ascend310P3, devices=2,queue=sync,memory=1g,poison=a5").unwrap();
        assert_eq!((config.soc.as_str(), config.devices, config.queue), ("Ascend310P3", 2, Queue::Sync));
        assert_eq!((config.memory, config.poison), (1 << 30, 0xa5));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, problem) in [
            ("socc=x", "`socc=x` is not understood"),
            ("queue=soon", "`queue=soon` is not understood"),
            ("devices", "`devices` is no key=value"),
        ] {
            assert_eq!(Config::parse(text).unwrap_err(), problem);
        }
    }
}
