//! Unit tests of the modules that kernels are built from. They are compiled here, not as tests of the library, without
//! the kernels themselves, which take minutes.
#![allow(dead_code, unused_imports, unused_macros, clippy::needless_range_loop)]

#[path = "../src/barrier.rs"]
mod barrier;
#[path = "../src/buffer.rs"]
mod buffer;
#[path = "../src/cancel.rs"]
mod cancel;
#[path = "../src/ops/product_quantised/columns.rs"]
mod columns;
#[path = "../src/ops/output/mod.rs"]
mod output;
#[path = "../src/quant/mod.rs"]
mod quant;
#[path = "../src/ops/rows.rs"]
mod rows;
#[path = "../src/scratch.rs"]
mod scratch;
#[path = "../src/sealed/mod.rs"]
mod sealed;
#[path = "../src/simd/mod.rs"]
mod simd;
#[path = "../src/tensor.rs"]
mod tensor;
#[path = "../src/ops/window.rs"]
mod window;
#[path = "../src/ops/worker.rs"]
mod worker;

/// What these modules use of the ops.
mod ops {
    pub(crate) use crate::rows;

    pub struct Column;
}

mod ceiling {
    use llmrt_cpu::ceiling::{dot, dot_speed, multiply_add, read};
    use llmrt_cpu::simd::Isa;

    #[test]
    fn every_instruction_set_reads_all_bytes() {
        let bytes: Vec<u8> = (0..1000).map(|i| (i * 7 % 251) as u8).collect();
        let expected = bytes.iter().fold(0, |a, b| a ^ b);
        for isa in Isa::available() {
            assert_eq!(read(isa, &bytes), expected, "{}", isa.name());
        }
    }

    #[test]
    fn operations_are_counted_as_they_are_done() {
        for isa in Isa::available() {
            assert!(multiply_add(isa, 1200) == 1200.0 * 32.0, "{}", isa.name());
            assert!(dot(isa, 9600) == 9600.0 * 128.0, "{}", isa.name());
        }
    }

    #[test]
    fn instruction_sets_are_compared_by_products() {
        for isa in Isa::available() {
            let speed = dot_speed(isa);
            println!("{}: {speed:.1} Gop/s", isa.name());
            assert!(speed.is_finite() && speed > 0.0, "{}", isa.name());
        }
    }
}
