//! L2: devices that put their results together (`llmrt.collective`): sums, rows and copies on all of them, in stream order.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking};
use crate::session::Session;
use llmrt_abi::{DType, types as c};
use llmrt_host::{Buffer, Group, Stream, TensorDesc};

/// The cases.
pub const CASES: &[Fixed] = &[
    ("a sum is that of all devices, on each of them", sums),
    ("a sum is of what came before it, and what comes next reads it", in_order),
    ("sums have equal bits on all devices and in every run", equal_bits),
    ("rows are those of all devices, one after the other", rows),
    ("a tensor of one device is copied to all", copies),
    ("a group is made again and again", again),
];

/// Numbers of a tensor: more than a few blocks, and no power of two.
const N: u64 = 4000;
/// Bytes from one tensor to the next in a buffer.
const STEP: u64 = 1 << 18;

/// The plugin's devices as a group, each with a stream and memory.
struct Members {
    group: Group,
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
}

impl Members {
    fn new(session: &mut Session) -> Verdict<Members> {
        let first = session.device()?;
        let devices: Vec<_> = std::iter::once(first).chain(session.other_devices()?).collect();
        if devices.len() < 2 {
            return lacking("the plugin has one device that can be used");
        }
        let group = match Group::new(&devices) {
            Ok(group) => group,
            Err(e) if e.is_unsupported() || e.call().is_none() => return lacking(e.to_string()),
            Err(e) => return Err(e.into()),
        };
        let streams = devices.iter().map(|d| d.stream(0)).collect::<Result<_, _>>()?;
        let buffers =
            devices.iter().map(|d| d.alloc(0, 4 * STEP, c::USAGE_COMPUTE)).collect::<Result<_, _>>()?;
        Ok(Members { group, streams, buffers })
    }

    fn n(&self) -> usize {
        self.buffers.len()
    }

    fn streams(&self) -> Vec<&Stream> {
        self.streams.iter().collect()
    }

    /// The tensor in place `i` of every buffer.
    fn at(&self, i: u64, ne: [u64; 4]) -> Vec<(&Buffer, TensorDesc<'static>)> {
        let desc = TensorDesc { offset: i * STEP, ..TensorDesc::contiguous(DType::F32, ne) };
        self.buffers.iter().map(|buffer| (buffer, desc)).collect()
    }

    /// Writes `value(rank, i)` to place 0.
    fn set(&self, value: impl Fn(usize, u64) -> f32) -> Verdict {
        for (rank, buffer) in self.buffers.iter().enumerate() {
            let bytes: Vec<u8> = (0..N).flat_map(|i| value(rank, i).to_ne_bytes()).collect();
            buffer.write(0, &bytes)?;
        }
        Ok(())
    }

    fn sum(&self, from: u64, to: u64) -> Verdict {
        let ne = [N, 1, 1, 1];
        Ok(self.group.all_reduce(&self.streams(), &self.at(from, ne), &self.at(to, ne))?)
    }

    /// `n` numbers in a place of a device, after its stream's work.
    fn get(&self, rank: usize, place: u64, n: u64) -> Verdict<Vec<f32>> {
        self.streams[rank].synchronize()?;
        let mut bytes = vec![0; 4 * n as usize];
        self.buffers[rank].read(place * STEP, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// All devices have these numbers in a place.
    fn expect(&self, place: u64, expected: &[f32], what: &str) -> Verdict {
        for rank in 0..self.n() {
            let found = self.get(rank, place, expected.len() as u64)?;
            let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
            insist(wrong.is_none(), || {
                let i = wrong.unwrap_or_default();
                format!("{what}: number {i} on device {rank} is {}, expected {}", found[i], expected[i])
            })?;
        }
        Ok(())
    }
}

/// Whole numbers, whose sums are exact in any order.
fn whole(rank: usize, i: u64) -> f32 {
    ((i * 7 + rank as u64 * 13) % 101) as f32 - 40.0
}

fn total(n: usize) -> Vec<f32> {
    (0..N).map(|i| (0..n).map(|rank| whole(rank, i)).sum()).collect()
}

fn sums(session: &mut Session) -> Verdict {
    let m = Members::new(session)?;
    m.set(whole)?;
    m.sum(0, 1)?;
    m.expect(1, &total(m.n()), "all_reduce")?;
    // In place.
    m.sum(0, 0)?;
    m.expect(0, &total(m.n()), "all_reduce in place")
}

fn in_order(session: &mut Session) -> Verdict {
    let m = Members::new(session)?;
    m.set(whole)?;
    m.sum(0, 1)?;
    m.sum(1, 2)?;
    m.sum(2, 2)?;
    let times = (m.n() * m.n()) as f32;
    let expected: Vec<f32> = total(m.n()).iter().map(|x| x * times).collect();
    m.expect(2, &expected, "three sums, each of the one before")
}

fn equal_bits(session: &mut Session) -> Verdict {
    let m = Members::new(session)?;
    m.set(|rank, i| ((i + 1) as f32 * (rank + 1) as f32 * 0.37).sin().exp())?;
    m.sum(0, 1)?;
    let first = m.get(0, 1, N)?;
    for _ in 0..5 {
        m.expect(1, &first, "all_reduce, other bits")?;
        m.sum(0, 1)?;
    }
    m.expect(1, &first, "all_reduce, other bits")
}

fn rows(session: &mut Session) -> Verdict {
    let m = Members::new(session)?;
    if !m.group.gathers() {
        return lacking("the plugin has no all_gather");
    }
    for n_rows in [1, 5] {
        let (width, n) = (N / n_rows, m.n() as u64);
        m.set(whole)?;
        let (src, dst) = (m.at(0, [width, n_rows, 1, 1]), m.at(1, [width * n, n_rows, 1, 1]));
        m.group.all_gather(&m.streams(), &src, &dst)?;
        let row =
            |r: u64| (0..m.n()).flat_map(move |rank| (0..width).map(move |i| whole(rank, r * width + i)));
        let expected: Vec<f32> = (0..n_rows).flat_map(row).collect();
        m.expect(1, &expected, "all_gather")?;
    }
    Ok(())
}

fn copies(session: &mut Session) -> Verdict {
    let m = Members::new(session)?;
    if !m.group.broadcasts() {
        return lacking("the plugin has no broadcast");
    }
    for root in 0..m.n() {
        m.set(whole)?;
        m.group.broadcast(&m.streams(), root, &m.at(0, [N, 1, 1, 1]))?;
        let expected: Vec<f32> = (0..N).map(|i| whole(root, i)).collect();
        m.expect(0, &expected, "broadcast")?;
    }
    Ok(())
}

fn again(session: &mut Session) -> Verdict {
    for _ in 0..3 {
        let m = Members::new(session)?;
        m.set(whole)?;
        m.sum(0, 1)?;
        m.expect(1, &total(m.n()), "all_reduce of a new group")?;
    }
    Ok(())
}
