//! Launches that the plugin makes for decodes, as plugins/cuda/examples/decode_launches.rs writes them down.

use super::chips::Chip;
use super::code::kept;
use super::machine::{Launch, Region};
use crate::matrix::target_of;
use crate::{cargo, run};
use std::path::Path;
use std::process::Command;

/// A graph.
#[derive(Default, Debug)]
pub struct Case {
    /// Type, rows and numbers of a row, columns; or attention, keys, sequences.
    pub name: String,
    /// That it reads and writes at least.
    pub least: f64,
    /// Sizes of tensors that are streamed.
    pub streams: Vec<u64>,
    /// In order.
    pub launches: Vec<Launch>,
}

/// Runs the example on a simulated card of this kind.
pub fn launches(chip: &Chip, tree: &Path) -> Result<Vec<Case>, String> {
    let file = kept().join(format!("launches-{}-{}.txt", chip.name, std::process::id()));
    std::fs::create_dir_all(kept()).map_err(|e| e.to_string())?;
    let _ = std::fs::remove_file(&file);
    // With the packages of `cargo programs`, whose features tests are built with: alone these would be compiled again. The first puts
    // the simulator's library, which the example opens, beside programs.
    run(cargo().current_dir(tree).args(["programs", "--quiet"]))?;
    run(cargo().current_dir(tree).args(["programs", "--quiet", "--example", "decode_launches"]))?;
    let example = target_of(tree).join("debug/examples/decode_launches");
    run(Command::new(example).arg(&file).args([chip.sm.to_string(), chip.n_sms.to_string()]))?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let _ = std::fs::remove_file(&file);
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Case>, String> {
    let (mut cases, mut regions): (Vec<Case>, Vec<Region>) = Default::default();
    for line in text.lines() {
        let wrong = || format!("not as expected: {}", line.chars().take(80).collect::<String>());
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["case", name, least] => {
                let least = least.parse().map_err(|_| wrong())?;
                cases.push(Case { name: name.into(), least, ..Case::default() });
            }
            ["stream", len] => {
                cases.last_mut().ok_or_else(wrong)?.streams.push(len.parse().map_err(|_| wrong())?);
            }
            ["region", at, len, ref bytes @ ..] => {
                let len = len.parse().map_err(|_| wrong())?;
                regions.push(Region {
                    at: u64::from_str_radix(at, 16).map_err(|_| wrong())?,
                    len,
                    bytes: bytes.first().map_or_else(Vec::new, |hex| unhex(hex)),
                    is_stream: cases.last().is_some_and(|case| case.streams.contains(&len)),
                });
            }
            ["launch", kernel, x, y, z, threads, shared, params] => {
                let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
                let launch = Launch {
                    kernel: kernel.into(),
                    grid: [number(x)?, number(y)?, number(z)?],
                    threads: number(threads)?,
                    shared: number(shared)?,
                    params: unhex(params),
                    regions: std::mem::take(&mut regions),
                };
                cases.last_mut().ok_or_else(wrong)?.launches.push(launch);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(cases)
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |i: usize| hex.get(2 * i..2 * i + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len() / 2).map(|i| byte(i).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_the_memory_before_it() {
        let cases = parse("case a 12\nstream 4\nregion ff00 2 0102\nlaunch k 1 2 3 128 0 0aff\nregion 10 4\nlaunch l 1 1 1 32 0 ").unwrap();
        let launches = &cases[0].launches;
        assert_eq!(
            (cases[0].least, launches[0].grid, &launches[0].params[..]),
            (12.0, [1, 2, 3], &[10, 255][..])
        );
        assert_eq!((launches[0].regions[0].at, &launches[0].regions[0].bytes[..]), (0xff00, &[1, 2][..]));
        assert!(launches[1].regions[0].is_stream && !launches[0].regions[0].is_stream);
        assert_eq!((launches[1].regions[0].len, launches[1].regions.len()), (4, 1));
        assert!(parse("launch k").is_err() && parse("something").is_err());
    }
}
