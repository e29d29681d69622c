//! How kernels come to a card whose driver refuses some images, and which compiler is used. Nothing here shows what a
//! real driver takes.

mod common;

use common::{Machine, bind, libraries};
use llmrt_abi::{DType, Status};
use llmrt_graph::ops::case::Case;
use std::os::unix::fs::symlink;
use std::path::Path;

/// One sum on card 0.
fn compute(m: &Machine) -> llmrt_host::Result<()> {
    let case = Case::new("a sum", |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[100]), g.input("b", DType::F32, &[100]));
        g.add(a, b);
    });
    let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap())?;
    let stream = m.card(0).stream(1)?;
    stream.compute(&bound.raw)?;
    stream.synchronize()
}

#[test]
fn an_image_that_the_driver_refuses_is_followed_by_another() {
    for takes in ["ptx", "made"] {
        let m = Machine::new(&format!("takes={takes}"));
        compute(&m).unwrap_or_else(|e| panic!("{takes}: {e}"));
        let log = m.log.lock().join("\n");
        assert!(
            log.contains("CUDA_ERROR_NO_BINARY_FOR_GPU") || takes == "made",
            "the log names the refusal: {log}"
        );
    }
}

#[test]
fn a_card_whose_driver_takes_nothing_reports_what_was_tried() {
    let m = Machine::new("takes=nothing");
    let e = compute(&m).unwrap_err();
    assert_eq!(e.call().unwrap().status, Status::Unsupported, "{e}");
    for words in ["no kernels `elementwise` for sm_90", "cargo ci cuda-kernels", "install NVRTC"] {
        assert!(e.to_string().contains(words), "{words}: {e}");
    }
    let log = m.log.lock().join("\n");
    for words in ["NVRTC for sm_90: cuModuleLoadData", "NVRTC for compute_80: cuModuleLoadData"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// A folder of compilers of these releases: those that are not the driver's file have theirs in its name.
fn compilers(releases: &[u32]) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    for release in releases {
        let (from, to) =
            (libraries().join("libcuda.so.1"), folder.path().join(format!("libnvrtc.so.{release}")));
        std::fs::copy(from, to).unwrap();
    }
    folder
}

/// Computes with the driver of a version and compilers in a folder; a driver refuses what later compilers make.
fn compute_with(version: u32, folder: &Path) -> llmrt_host::Result<()> {
    let dir = folder.display().to_string();
    compute(&Machine::with_options(&format!("takes=made,version={version}"), &[("cuda.nvrtc_dir", &dir)]))
}

#[test]
fn the_compiler_is_the_newest_that_the_driver_takes_binaries_of() {
    let both = compilers(&[12, 13]);
    compute_with(12040, both.path()).unwrap();
    compute_with(13000, both.path()).unwrap();
    compute_with(13000, compilers(&[12]).path()).unwrap();
    let later = compilers(&[13]);
    // Under the name without a number it is found, and distinguished by the version that it reports.
    symlink(later.path().join("libnvrtc.so.13"), later.path().join("libnvrtc.so")).unwrap();
    let e = compute_with(12040, later.path()).unwrap_err();
    assert_eq!(e.call().unwrap().status, Status::Unsupported, "{e}");
}
