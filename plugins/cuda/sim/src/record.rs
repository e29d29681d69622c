//! Launches written down instead of run: for tools that need the plugin's grids and arguments, and memory as it is then.
//!
//! Lines: `region ADDRESS BYTES [HEX]` for each allocation, with its bytes if they are few and not all the poison of new
//! memory; then `launch KERNEL X Y Z THREADS SHARED HEX`, the argument in hexadecimal.

use crate::emu::Kernel;
use crate::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE};
use crate::world::{Answer, World};
use std::io::Write;

/// Bytes up to which the content of an allocation is written.
const SMALL: usize = 64 << 10;

impl World {
    /// Appends a launch, with all memory before it, to the configured file.
    pub(crate) fn record(
        &self,
        kernel: &Kernel,
        params: &[u8],
        grid: [u32; 3],
        (threads, shared): (u32, u32),
    ) -> Answer {
        let mut text = String::new();
        for (at, len) in self.space.pieces() {
            let (_, bytes) = self.space.bytes(at, len).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
            // SAFETY: as many bytes of a card, which only the world uses.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, len.min(SMALL)) };
            let is_shown = len <= SMALL && bytes.iter().any(|byte| *byte != 0xff);
            text += &format!(
                "region {at:x} {len}{}\n",
                if is_shown { format!(" {}", hex(bytes)) } else { String::new() }
            );
        }
        let [x, y, z] = grid;
        text += &format!("launch {} {x} {y} {z} {threads} {shared} {}\n", kernel.name(), hex(params));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.config.launches);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
