//! What a simulated device is like, read from text: sections of `key = value` lines.

use crate::limits::{Limit, Mask};
use llmrt_plugin::abi::types::{DEVICE_ACCEL, DEVICE_GPU, DEVICE_NPU};
use llmrt_plugin::{DType, Error, Host, Op, Result};
use std::time::Duration;

/// The profiles that are built in.
const BUILT_IN: &str = include_str!("../profiles.conf");

/// Keys that options may change for every profile.
const KEYS: [&str; 19] = [
    "description",
    "arch",
    "kind",
    "devices",
    "memory",
    "max_alloc",
    "alignment",
    "latency",
    "bandwidth",
    "rate",
    "queue",
    "seed",
    "p2p",
    "vmm",
    "faults",
    "streams",
    "events",
    "ops",
    "dtypes",
];

/// A simulated device; `profiles.conf` documents the fields.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the keys of profiles.conf
pub struct Profile {
    pub name: String,
    pub description: String,
    pub arch: String,
    pub kind: u32,
    pub devices: usize,
    pub memory: u64,
    pub max_alloc: u64,
    pub alignment: u64,
    pub latency: Duration,
    /// Bytes per second; 0: no limit.
    pub bandwidth: u64,
    /// Bytes of weights per second; 0: no limit.
    pub rate: u64,
    pub queue: When,
    pub seed: u64,
    pub p2p: bool,
    pub vmm: bool,
    pub faults: Vec<Fault>,
    pub streams: usize,
    pub events: usize,
    pub ops: Mask<Op>,
    pub dtypes: Mask<DType>,
    pub op_dtypes: Vec<(Op, Mask<DType>)>,
    pub limits: Vec<(Op, Limit)>,
}

/// What a device does wrong, for tests of the checks that must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No stream waits for an event.
    IgnoresEvents,
    /// Scratch memory is filled when work is enqueued, and not in its turn.
    StagesEarly,
    /// Scratch memory goes back twice.
    FreesTwice,
    /// Scratch memory goes back in the order in which it was given.
    FreesInOrder,
    /// Scratch memory does not go back.
    KeepsScratch,
}

impl Fault {
    const NAMES: [(&str, Fault); 5] = [
        ("ignores_events", Fault::IgnoresEvents),
        ("stages_early", Fault::StagesEarly),
        ("frees_twice", Fault::FreesTwice),
        ("frees_in_order", Fault::FreesInOrder),
        ("keeps_scratch", Fault::KeepsScratch),
    ];

    fn parse(name: &str) -> Result<Fault, String> {
        let found = Fault::NAMES.iter().find(|(n, _)| *n == name).map(|(_, fault)| *fault);
        found.ok_or_else(|| {
            format!("`{name}`: expected one of {}", Fault::NAMES.map(|(name, _)| name).join(", "))
        })
    }
}

/// When a queue runs what was put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as it can.
    Now,
    /// After a random time, at most this long, for each command.
    Delayed(Duration),
    /// When the host waits for it.
    AtSync,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            name: String::new(),
            description: "simulated device".into(),
            arch: "sim".into(),
            kind: DEVICE_ACCEL,
            devices: 1,
            memory: 1 << 30,
            max_alloc: 0,
            alignment: 128,
            latency: Duration::ZERO,
            bandwidth: 0,
            rate: 0,
            queue: When::Now,
            seed: 1,
            p2p: false,
            vmm: true,
            faults: Vec::new(),
            streams: 0,
            events: 0,
            ops: Mask::all(Op::ALL),
            dtypes: Mask::all(DType::ALL),
            op_dtypes: Vec::new(),
            limits: Vec::new(),
        }
    }
}

/// The profiles of the file that an option names, or the built-in ones, with what other options change.
pub fn load(host: &Host) -> Result<Vec<Profile>> {
    let mut profiles = match host.option("sim.profiles") {
        None => parse(BUILT_IN).map_err(|e| Error::invalid(format!("built-in profiles: {e}")))?,
        Some(path) => {
            let text = std::fs::read_to_string(&path).map_err(|e| e.to_string());
            text.and_then(|text| parse(&text)).map_err(|e| Error::invalid(format!("{path}: {e}")))?
        }
    };
    for key in KEYS {
        let Some(value) = host.option(&format!("sim.{key}")) else { continue };
        for profile in &mut profiles {
            profile.set(key, &value).map_err(|e| Error::invalid(format!("option sim.{key}={value}: {e}")))?;
        }
    }
    Ok(profiles)
}

/// Reads a text of profiles. Errors name the line.
pub fn parse(text: &str) -> Result<Vec<Profile>, String> {
    let mut profiles: Vec<Profile> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let at = |problem: String| format!("line {}: {problem}", i + 1);
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let is_new = !name.is_empty() && profiles.iter().all(|p| p.name != name);
            if !is_new || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
                return Err(at(format!(
                    "section `{name}`: expected a new name of letters, digits, `-` and `_`"
                )));
            }
            profiles.push(Profile { name: name.into(), ..Profile::default() });
            continue;
        }
        let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let (Some((key, value)), Some(profile)) = (pair, profiles.last_mut()) else {
            return Err(at(format!("`{line}`: expected [section], then key = value")));
        };
        profile.set(key, value).map_err(|e| at(format!("{key}: {e}")))?;
    }
    Ok(profiles)
}

impl Profile {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(op) = key.strip_prefix("dtypes.") {
            self.op_dtypes.push((op_named(op)?, Mask::parse(value, DType::ALL, DType::from_name)?));
            return Ok(());
        }
        if let Some(op) = key.strip_prefix("limit.") {
            let op = op_named(op)?;
            for rule in value.split_whitespace() {
                self.limits.push((op, Limit::parse(rule)?));
            }
            return Ok(());
        }
        match key {
            "description" => self.description = value.into(),
            "arch" => self.arch = value.into(),
            "kind" => {
                self.kind = match value {
                    "gpu" => DEVICE_GPU,
                    "npu" => DEVICE_NPU,
                    "accel" => DEVICE_ACCEL,
                    _ => return Err(format!("`{value}`: expected gpu, npu or accel")),
                }
            }
            "devices" => self.devices = number(value, 1, 64)? as usize,
            "memory" => self.memory = bytes(value)?,
            "max_alloc" => self.max_alloc = bytes(value)?,
            "alignment" => {
                let n = number(value, 1, 4096)?;
                if !n.is_power_of_two() {
                    return Err(format!("{n}: expected a power of two up to 4096"));
                }
                self.alignment = n;
            }
            "latency" => self.latency = Duration::from_micros(number(value, 0, 60_000_000)?),
            "bandwidth" => self.bandwidth = bytes(value)?,
            "rate" => self.rate = bytes(value)?,
            "queue" => self.queue = When::parse(value)?,
            "seed" => self.seed = number(value, 0, u64::MAX)?,
            "p2p" => self.p2p = yes_or_no(value)?,
            "vmm" => self.vmm = yes_or_no(value)?,
            "faults" => self.faults = value.split_whitespace().map(Fault::parse).collect::<Result<_, _>>()?,
            "streams" => self.streams = number(value, 0, 1 << 20)? as usize,
            "events" => self.events = number(value, 0, 1 << 20)? as usize,
            "ops" => self.ops = Mask::parse(value, Op::ALL, Op::from_name)?,
            "dtypes" => self.dtypes = Mask::parse(value, DType::ALL, DType::from_name)?,
            _ => return Err(format!("unknown key; known are {}, dtypes.OP and limit.OP", KEYS.join(", "))),
        }
        Ok(())
    }
}

impl When {
    fn parse(text: &str) -> Result<When, String> {
        match text.split_once(':') {
            None if text == "now" => Ok(When::Now),
            None if text == "sync" => Ok(When::AtSync),
            Some(("delay", us)) => {
                Ok(When::Delayed(Duration::from_micros(number(us.trim(), 1, 10_000_000)?)))
            }
            _ => Err(format!("`{text}`: expected now, delay:MICROSECONDS or sync")),
        }
    }
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{value}`: expected yes or no")),
    }
}

fn op_named(name: &str) -> Result<Op, String> {
    Op::from_name(name).ok_or_else(|| format!("there is no op `{name}`"))
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let n = text.parse().ok().filter(|n| (least..=most).contains(n));
    n.ok_or_else(|| format!("`{text}`: expected a whole number from {least} to {most}"))
}

/// A number of bytes: `4096`, `64 MiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = units.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (digits, unit) = unit.unwrap_or((text, 1u64));
    number(digits.trim(), 0, u64::MAX)?.checked_mul(unit).ok_or_else(|| format!("`{text}`: too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_profiles_are_the_documented_ones() {
        let profiles = parse(BUILT_IN).unwrap();
        let names: Vec<_> = profiles.iter().map(|p| (p.name.as_str(), p.memory >> 20)).collect();
        assert_eq!(names, [("sim", 16384), ("small", 64), ("910b", 65536), ("310p", 24576)]);
        let [.., p] = profiles.as_slice() else { panic!() };
        assert!(!p.dtypes.has(DType::BF16) && !p.dtypes.has(DType::Q4_0) && p.dtypes.has(DType::Q8_0));
        assert!(!p.ops.has(Op::Attention) && p.ops.has(Op::MulMat));
    }

    #[test]
    fn sizes_and_queues_are_read() {
        let text = "[x] # a device\nmemory = 3 KiB\nqueue = delay:50\nops = add mul\ndevices=2";
        let [x] = parse(text).unwrap().try_into().unwrap();
        assert_eq!((x.memory, x.queue, x.devices), (3072, When::Delayed(Duration::from_micros(50)), 2));
        assert!(x.ops.has(Op::Add) && !x.ops.has(Op::Sub));
    }

    fn check(text: &str, words: &str) {
        let problem = parse(text).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        check("memory = 1", "line 1: `memory = 1`: expected [section]");
        check("[a]\n[a]", "line 2: section `a`");
        check("[a]\n\nmemory = lots", "line 3: memory: `lots`: expected a whole number");
        check("[a]\nqueue = later", "expected now, delay:MICROSECONDS or sync");
        check("[a]\nops = add fly", "`fly`");
        check("[a]\nalignment = 48", "expected a power of two");
        check("[a]\nlimit.mul_mat = ne0<=4", "`ne0<=4`");
        check("[a]\ncolour = red", "unknown key");
        check("[a]\nvmm = maybe", "expected yes or no");
        check("[a]\nfaults = frees_twice sleeps", "`sleeps`: expected one of ignores_events");
    }
}
