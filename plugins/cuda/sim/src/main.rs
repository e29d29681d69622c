//! Writes a folder of libraries that stands in for the vendor's, or lists the kernels: `llmrt-cuda-sim DIR | --kernels`.

use std::process::ExitCode;

const USAGE: &str = "usage: cargo ci cuda-sim DIR | --kernels

  DIR         gets libcuda.so.1, libnvrtc.so.12 and cublas/libcublasLt.so.12, simulated
  --kernels   lists the kernels that are covered by the emulation";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--kernels"] => {
            let mut names: Vec<_> = cuda_simulator::emu::kernels().map(|kernel| kernel.name()).collect();
            names.sort_unstable();
            // Of some there is one per chip.
            names.dedup();
            println!("{}", names.join("\n"));
            Ok(())
        }
        [dir] if !dir.starts_with('-') => cuda_simulator::install::install(dir.as_ref()),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
