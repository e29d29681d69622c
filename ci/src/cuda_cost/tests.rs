//! Small programs in machine code, as nvdisasm prints them: what they compute, what they load, how long they take.

use super::chips::CHIPS;
use super::is_meant;
use super::machine::{Event, Launch, Machine, Region};
use super::model::cost;
use super::sass::{Kernel, kernel};
use super::timing::{Unit, cache_clocks, replay, unit};

const AT: u64 = 0x4000_0000_0001_0000;

/// Lines as nvdisasm writes them; an address before each instruction, none before a label.
fn program(lines: &str) -> Kernel {
    let line = |(i, line): (usize, &str)| match line.trim() {
        label if label.ends_with(':') => format!("{label}\n"),
        instruction => format!("        /*{:04x}*/   {instruction} ;\n", 16 * i),
    };
    kernel(&lines.trim().lines().enumerate().map(line).collect::<String>()).unwrap()
}

fn launch(words: &[u32]) -> Launch {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let region = Region { at: AT, len: 1 << 16, bytes, is_stream: true };
    Launch {
        grid: [1; 3],
        threads: 32,
        params: AT.to_le_bytes().to_vec(),
        regions: vec![region],
        ..Launch::default()
    }
}

/// Runs a program, which has its lane in R0 and the address of `words` in R2 and R3; the word that each lane left in R4.
fn results(lines: &str, words: &[u32]) -> Vec<u32> {
    let head = "S2R R0, SR_TID.X\nLDC.64 R2, c[0x0][0x210]\n";
    let tail = "\nIMAD.WIDE.U32 R2, R0, 0x4, R2\nST.E desc[UR4][R2.64+0x1000], R4\nEXIT";
    let (kernel, launch) = (program(&format!("{head}{}{tail}", lines.trim())), launch(words));
    let mut machine = Machine::new(&kernel, &launch, [0; 3], 0x210, &[]);
    machine.run().unwrap();
    (0..32).map(|lane| machine.load(AT + 0x1000 + 4 * lane, 4).unwrap() as u32).collect()
}

#[track_caller]
fn check(lines: &str, words: &[u32], of_lane: impl Fn(u32) -> u32) {
    assert_eq!(results(lines, words), (0..32).map(of_lane).collect::<Vec<_>>(), "{lines}");
}

#[test]
fn integers_are_added_multiplied_and_shifted() {
    check("IADD3 R4, R0, 0x5, -R0", &[], |_| 5);
    check("IMAD R4, R0, 0x7, R0", &[], |lane| 8 * lane);
    check("LEA R4, R0, 0x1, 0x4", &[], |lane| 16 * lane + 1);
    check("LEA.HI R4, R0, R0, RZ, 0x1f", &[], |lane| lane + (lane >> 1));
    check("SHF.R.U32.HI R4, RZ, 0x1, R0", &[], |lane| lane >> 1);
    check("MOV R4, 0x80000000\nSHF.R.S32.HI R4, RZ, 0x1f, R4", &[], |_| u32::MAX);
    check("LOP3.LUT R4, R0, 0x3, RZ, 0xc0, !PT", &[], |lane| lane & 3);
    check("LOP3.LUT R4, R0, 0x3, R0, 0x96, !PT", &[], |_| 3);
    check("MOV R5, 0x80ff7f01\nPRMT R4, R5, 0x9b10, RZ", &[], |_| 0x00ff_7f01);
    check("MOV R5, 0xff02\nIDP.4A.S8.S8 R4, R5, R0, 0x3", &[], |lane| 2 * lane + 3);
    check("POPC R4, R0", &[], u32::count_ones);
    check("FLO.U32 R4, R0", &[], |lane| 31u32.wrapping_sub(lane.leading_zeros()));
    check(
        "BREV R5, R0\nFLO.U32.SH R4, R5",
        &[],
        |lane| if lane == 0 { u32::MAX } else { lane.trailing_zeros() },
    );
    check("R2P PR, R0, 0x2\nSEL R4, 0x1, RZ, P1", &[], |lane| lane >> 1 & 1);
    check("VIMNMX.U32 R4, R0, 0x9, PT", &[], |lane| lane.min(9));
}

#[test]
fn numbers_of_64_bits_carry_and_compare_by_halves() {
    // 2^32 - 1 + lane: the upper half is 1 from lane 1 on.
    check("IADD3 R5, P0, R0, 0xffffffff, RZ\nIADD3.X R4, RZ, RZ, RZ, P0, !PT", &[], |lane| {
        u32::from(lane >= 1)
    });
    // lane - 5, and the borrow.
    check("IADD3 R5, P0, R0, -0x5, RZ\nSEL R4, RZ, 0x1, P0", &[], |lane| u32::from(lane < 5));
    check("MOV R6, 0x5\nIADD3 R5, P0, R0, -R6, RZ\nIADD3.X R4, RZ, ~RZ, RZ, P0, !PT", &[], |lane| {
        if lane >= 5 { 0 } else { u32::MAX }
    });
    let less =
        "ISETP.LT.U32.AND P1, PT, R0, 0x9, PT\nISETP.LT.AND.EX P1, PT, RZ, RZ, PT, P1\nSEL R4, 0x1, RZ, P1";
    check(less, &[], |lane| u32::from(lane < 9));
    check("MOV R6, 0x10000\nIMAD.HI.U32 R4, R6, 0x30000, RZ", &[], |_| 3);
    check("MOV R6, 0x10000\nIMAD.WIDE.U32 R4, R6, 0x30000, RZ\nMOV R4, R5", &[], |_| 3);
}

#[test]
fn floats_are_computed_and_converted() {
    let bits = |x: f32| x.to_bits();
    check("I2FP.F32.S32 R5, R0\nFFMA R4, R5, 2, 0.5", &[], |lane| bits(2.0 * lane as f32 + 0.5));
    check("I2F.U32.RP R5, R0\nFMNMX R4, R5, 7, !PT", &[], |lane| bits((lane as f32).max(7.0)));
    check("MOV R5, 0x40a00000\nF2I.FTZ.U32.TRUNC.NTZ R4, -R5", &[], |_| 0);
    check("MOV R5, 0x3c00c000\nHADD2.F32 R4, -RZ, R5.H0_H0", &[], |_| bits(-2.0));
    check("MOV R5, 0x3c00c000\nHADD2.F32 R4, -RZ, R5.H1_H1", &[], |_| bits(1.0));
    check("HFMA2.MMA R4, -RZ, RZ, 1.875, 0", &[], |_| bits(1.0));
    check("FSETP.GEU.AND P0, PT, |R4|, +INF , PT\nSEL R4, 0x1, 0x2, P0", &[], |_| 2);
    check("SHFL.BFLY PT, R4, R0, 0x3, 0x1f", &[], |lane| lane ^ 3);
    check("ISETP.GT.AND P0, PT, R0, 0xf, PT\nVOTE.ANY R4, PT, P0", &[], |_| 0xffff_0000);
}

#[test]
fn votes_of_all_lanes_are_one_for_the_warp() {
    let vote = |relation: &str| {
        format!(
            "ISETP.{relation}.AND P0, PT, R0, 0x20, PT\nVOTEU.ALL UP0, P0\nUSEL UR4, URZ, 0x1, UP0\nMOV R4, UR4"
        )
    };
    check(&vote("LT"), &[], |_| 0);
    check(&vote("EQ"), &[], |_| 1);
    check("ISETP.LT.AND P0, PT, R0, 0x4, PT\nVOTEU.ANY UR4, UPT, P0\nMOV R4, UR4", &[], |_| 15);
}

#[test]
fn lanes_that_part_come_together_again() {
    let code = "
ISETP.GE.AND P0, PT, R0, 0x8, PT
MOV R4, 0x1
BSSY B0, `(.L_x_1)
@P0 BRA `(.L_x_0)
MOV R4, 0x2
BRA `(.L_x_1)
.L_x_0:
MOV R4, 0x3
.L_x_1:
BSYNC B0
SHFL.BFLY PT, R4, R4, 0x10, 0x1f";
    // The shuffle sees all lanes, so it was issued once for all.
    check(code, &[], |lane| if lane ^ 16 < 8 { 2 } else { 3 });
}

#[test]
fn functions_return_to_where_they_were_called() {
    let code = "
MOV R6, 0x50
CALL.REL.NOINC `(.L_f)
BRA `(.L_end)
.L_f:
IADD3 R4, R0, 0x1, RZ
RET.REL.NODEC R6 `(k)
.L_end:
IADD3 R4, R4, 0x1, RZ";
    // S2R, LDC, MOV and CALL come before: the return goes to the fifth instruction, which is at 0x40.
    check(&code.replace("0x50", "0x40"), &[], |lane| lane + 2);
}

fn events(lines: &str) -> (Kernel, Vec<Event>) {
    let head = "S2R R0, SR_TID.X\nLDC.64 R2, c[0x0][0x210]\n";
    let (kernel, launch) = (program(&format!("{head}{}\nEXIT", lines.trim())), launch(&[1; 64]));
    let mut warps = Machine::new(&kernel, &launch, [0; 3], 0x210, &[]).run().unwrap();
    (kernel, warps.remove(0))
}

/// Blocks of 18 bytes side by side, two bytes of each: 32 of them are in 18 sectors, and a bank has at most five.
#[test]
fn a_load_costs_what_its_lanes_addresses_touch() {
    for (stride, width, sectors, clocks) in [
        (18, "U16", 18, 5.0),
        (2, "U16", 2, 1.0),
        (4, "32", 4, 1.0),
        (16, "128", 16, 4.0),
        (128, "32", 32, 32.0),
    ] {
        let width = if width == "32" { String::new() } else { format!(".{width}") };
        let (_, events) =
            events(&format!("IMAD.WIDE.U32 R6, R0, {stride:#x}, R2\nLD.E{width} R4, desc[UR4][R6.64]"));
        let access = events.iter().find_map(|event| event.access.as_ref()).unwrap();
        assert_eq!(access.sectors.len(), sectors, "{stride}");
        assert_eq!(cache_clocks(&CHIPS[0], access), clocks, "{stride}");
    }
}

#[test]
fn loads_overlap_where_none_waits_for_another() {
    let far = CHIPS[0].latency[2];
    let time = |lines: &str| {
        let (kernel, events) = events(lines);
        replay(&CHIPS[0], far, &kernel, &events)
    };
    let apart =
        time("LD.E R4, desc[UR4][R2.64]\nLD.E R5, desc[UR4][R2.64+0x80]\nIADD3 R6, R4, R5, RZ\nMOV R7, R6");
    let chain =
        time("LD.E R4, desc[UR4][R2.64]\nIADD3 R2, R2, R4, RZ\nLD.E R5, desc[UR4][R2.64+0x7f]\nMOV R7, R5");
    assert_eq!((apart.in_flight, chain.in_flight), (2, 1));
    assert!(apart.clocks < far + 100 && chain.clocks > 2 * far, "{apart:?} {chain:?}");
    let near = time("LD.E R4, desc[UR4][R2.64]\nMOV R6, R4\nLD.E R5, desc[UR4][R2.64+0x4]\nMOV R7, R5");
    assert_eq!(near.in_flight, 1, "the second load finds its bytes in the first cache");
    assert!(near.clocks < far + 150, "{near:?}");
}

#[test]
fn a_launch_takes_as_long_as_its_scarcest_resource() {
    let chip = &CHIPS[0];
    let body = "IADD3 R5, R0, 0x1, RZ\n".repeat(1000);
    let (kernel, events) = events(&format!("LD.E R4, desc[UR4][R2.64]\n{body}"));
    let mut launch = launch(&[]);
    launch.grid = [132 * 64, 1, 1];
    let cost = cost(chip, &kernel, &launch, &[events], 32, 0);
    assert_eq!(cost.limit(), "int");
    assert_eq!((cost.resident, cost.warps), (32, 32.0));
    // 64 warps of a multiprocessor, 1000 instructions of each at half a clock.
    let expected = 64.0 * 1000.0 * 0.5 / chip.clock / 1000.0;
    assert!((cost.time() / expected - 1.0).abs() < 0.01, "{} {expected}", cost.time());
    assert_eq!((cost.requests, cost.bytes, cost.sectors), (1, 128, 1));
}

#[test]
fn instructions_go_to_their_units() {
    let code = program(
        "IMAD R4, R0, R0, RZ\nFFMA R4, R0, R0, RZ\nUIADD3 UR4, UR4, 0x1, URZ\nMUFU.RCP R4, R4\nSEL R4, R0, R4, P0\nIMMA.16816.S8.S8 R4, R4.ROW, R6.COL, R4",
    );
    let units: Vec<Unit> = code.code.iter().map(unit).collect();
    assert_eq!(units, [Unit::Product, Unit::Float, Unit::Other, Unit::Function, Unit::Integer, Unit::Tensor]);
}

/// a and b are 1 in all bytes of the lanes' words: each of 16 products of a sum is their product. Matrices of halves: lane l's row
/// begins at 16 l, and a lane gets the word of its place and quarter.
#[test]
fn warps_multiply_and_load_matrices() {
    let ones = "MOV R8, 0x01010101\nMOV R9, 0x01010101\nMOV R10, 0x01010101\nMOV R12, R0\nMOV R13, 0x5\nMOV R14, 0x6\nMOV R15, 0x7\n";
    check(&format!("{ones}IMMA.16816.S8.S8 R4, R8.ROW, R10.COL, R12"), &[], |lane| lane + 16);
    check(&format!("{ones}IMMA.16816.S8.S8 R4, R8.ROW, R10.COL, R12\nMOV R4, R7"), &[], |_| 7 + 16);
    // Bytes of lane 4 place + quarter: 1 for place 2 alone, so rows 2 and 10 have products.
    let places = "SHF.R.U32.HI R6, RZ, 0x2, R0\nISETP.EQ.AND P0, PT, R6, 0x2, PT\nSEL R8, R8, RZ, P0\nSEL R9, R9, RZ, P0\n";
    check(&format!("{ones}{places}IMMA.16816.S8.S8 R4, R8.ROW, R10.COL, RZ"), &[], |lane| {
        if lane / 4 == 2 { 16 } else { 0 }
    });
    let store = "IMAD.SHL.U32 R6, R0, 0x4, RZ\nSTS [R6], R0\nSTS [R6+0x80], R0\nSTS [R6+0x100], R0\nSTS [R6+0x180], R0\nIMAD.SHL.U32 R6, R0, 0x10, RZ\n";
    check(&format!("{store}LDSM.16.M88.4 R4, [R6]"), &[], |lane| lane);
    check(&format!("{store}LDSM.16.M88 R4, [R6]"), &[], |lane| lane);
}

#[test]
fn shared_memory_gives_a_word_per_bank_and_clock() {
    for (stride, width, clocks) in
        [(4, "", 1), (8, "", 2), (128, "", 32), (132, "", 1), (16, ".128", 4), (0, ".128", 1)]
    {
        let (_, events) = events(&format!("IMAD R6, R0, {stride:#x}, RZ\nLDS{width} R4, [R6]"));
        assert_eq!(events.iter().map(|event| event.shared_clocks).max(), Some(clocks), "{stride}");
    }
}

#[test]
fn copies_are_waited_for() {
    let far = CHIPS[0].latency[2];
    let clocks = |left: u32| {
        let copy = "LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64]\nLDGDEPBAR";
        let (kernel, events) = events(&format!("MOV R5, RZ\n{copy}\nDEPBAR.LE SB0, {left:#x}\nMOV R7, R6"));
        replay(&CHIPS[0], far, &kernel, &events).clocks
    };
    assert!(clocks(0) > far && clocks(1) < far, "{} {}", clocks(0), clocks(1));
}

#[test]
fn what_is_not_modelled_is_named() {
    let (kernel, launch) = (program("HMMA.16816.F32 R4, R4, R6, R4\nEXIT"), launch(&[]));
    let Err(message) = Machine::new(&kernel, &launch, [0; 3], 0x210, &[]).run() else { panic!("accepted") };
    assert!(message.contains("HMMA.16816.F32") && message.contains("not modelled"), "{message}");
}

/// Kernels that change make the table old: `cargo ci cuda-cost` writes it again.
#[test]
fn the_table_is_of_the_kernels_that_are_here() {
    let sources = super::sources::Sources::read(&crate::root().join("plugins/cuda/kernels")).unwrap();
    let stored = crate::committed(super::TABLE);
    let head = super::table::head(sources.hash());
    assert!(stored.starts_with(&head), "{} is old: run `cargo ci cuda-cost`", super::TABLE);
}

/// The plugin's launches: a change of a grid or of the choice of a kernel makes the table old, too.
#[test]
fn the_table_is_of_the_launches_that_the_plugin_makes() {
    let stored = crate::committed(super::TABLE);
    for card in &CHIPS {
        let cases = super::launches::launches(card, crate::root()).unwrap();
        let launches = cases.iter().flat_map(|case| &case.launches).filter(|launch| is_meant(launch));
        let made = launches.map(|launch| (launch.kernel.clone(), launch.grid.iter().product::<u32>()));
        let made: Vec<_> = made.collect();
        assert!(made.len() > 80, "{} launches", made.len());
        assert!(
            made == super::table::launches_in(&stored, card),
            "{} is old: run `cargo ci cuda-cost`",
            super::TABLE
        );
    }
}
