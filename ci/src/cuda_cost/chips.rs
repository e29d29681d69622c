//! Cards that costs are given for, by what is published of them.

/// A card.
pub struct Chip {
    /// As people call it.
    pub name: &'static str,
    /// As the compiler calls its chip.
    pub target: &'static str,
    /// Its compute capability, as the simulated driver is given it.
    pub sm: u32,
    /// Multiprocessors.
    pub n_sms: u32,
    /// GHz.
    pub clock: f64,
    /// GB/s of its memory.
    pub memory: f64,
    /// Bytes that all multiprocessors get from the second cache, per clock.
    pub l2_bytes: f64,
    /// Clocks until a load returns: from the first cache, the second, the memory.
    pub latency: [u64; 3],
    /// F32 operations per clock of a multiprocessor.
    pub fp32: u32,
    /// Products of bytes on tensor cores per clock of a multiprocessor, by instructions of a warp.
    pub byte_products: u32,
    /// Lanes of loads and stores per clock of a multiprocessor.
    pub load_lanes: u32,
    /// Warps and blocks that a multiprocessor holds.
    pub warps: u32,
    /// As above.
    pub blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: u32,
    /// Where a kernel's argument begins in bank 0 of constants, as NVRTC 12.9 lays it out.
    pub params_at: i64,
}

/// Registers of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"): the same
/// on all three. They are handed out to warps in units of 256.
pub const REGISTERS: u32 = 65536;
/// Bytes of shared memory that each block takes beside its own, from compute capability 8.0 on (same guide).
pub const RESERVED: u32 = 1024;
/// Instructions that a multiprocessor issues per clock: one by each of its four schedulers (same guide, "Architecture" of
/// compute capability 8.x and 9.0).
pub const SCHEDULERS: f64 = 4.0;

/// Multiprocessors, clock and memory: NVIDIA's data sheets of H100 SXM (3.35 TB/s HBM3), A100 SXM 80 GB (2.04 TB/s HBM2e) and
/// GeForce RTX 4090 (1.008 TB/s GDDR6X). The clock of H100 is what the PCIe card reports as its highest; the SXM card's is up
/// to 1.98, which only helps. Warps, blocks and shared memory: the guide's table of compute capabilities 9.0, 8.0 and 8.9.
/// Latencies: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024),
/// rounded; measured on idle cards, so that a busy memory answers later. Bytes of the second cache: A100's white paper (5120);
/// H100 is taken to be alike, and so are its products of bytes by warps: twice that takes products by groups of warps. RTX 4090: about the 5 TB/s that tests of others found.
pub const CHIPS: [Chip; 3] = [
    Chip {
        name: "H100",
        target: "sm_90a",
        sm: 90,
        n_sms: 132,
        clock: 1.755,
        memory: 3350.0,
        l2_bytes: 5120.0,
        latency: [41, 263, 479],
        fp32: 128,
        byte_products: 2048,
        load_lanes: 32,
        warps: 64,
        blocks: 32,
        shared: 228 << 10,
        params_at: 0x210,
    },
    Chip {
        name: "A100",
        target: "sm_80",
        sm: 80,
        n_sms: 108,
        clock: 1.41,
        memory: 2039.0,
        l2_bytes: 5120.0,
        latency: [38, 262, 466],
        fp32: 64,
        byte_products: 2048,
        load_lanes: 32,
        warps: 64,
        blocks: 32,
        shared: 164 << 10,
        params_at: 0x160,
    },
    Chip {
        name: "4090",
        target: "sm_89",
        sm: 89,
        n_sms: 128,
        clock: 2.52,
        memory: 1008.0,
        l2_bytes: 2048.0,
        latency: [43, 273, 541],
        fp32: 128,
        byte_products: 1024,
        load_lanes: 16,
        warps: 48,
        blocks: 24,
        shared: 100 << 10,
        params_at: 0x160,
    },
];

impl Chip {
    /// Bytes that the memory gives a multiprocessor per clock.
    pub fn bytes_per_clock(&self) -> f64 {
        self.memory / self.clock / f64::from(self.n_sms)
    }

    /// Blocks that a multiprocessor holds at once: by warps, blocks, registers and shared memory.
    pub fn resident(&self, threads: u32, registers: u32, shared: u32) -> u32 {
        let warps = threads.div_ceil(32).max(1);
        let of_warp = (registers * 32).next_multiple_of(256).max(256);
        let by = [
            self.warps / warps,
            self.blocks,
            REGISTERS / (of_warp * warps),
            self.shared / (shared + RESERVED),
        ];
        by.into_iter().min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_limited_by_the_scarcest() {
        let h100 = &CHIPS[0];
        assert_eq!(h100.resident(128, 32, 0), 16, "warps");
        assert_eq!(h100.resident(32, 16, 0), 32, "blocks");
        assert_eq!(h100.resident(128, 64, 0), 8, "registers");
        assert_eq!(h100.resident(128, 65, 0), 7, "registers in units of 8 per lane");
        assert_eq!(h100.resident(128, 32, 47 << 10), 4, "shared memory");
        assert_eq!(CHIPS[2].resident(128, 32, 0), 12);
    }
}
