//! Which layouts weights get on the cards: as options set, or as the card is fastest with (`cann.tune`). A layout whose products
//! are not right on this chip and release is not taken, whatever the options request.

use crate::chip::Chip;
use crate::layout::Choice;
use crate::remember;
use crate::runtime::Runtime;
use crate::stream::CardStream;
use crate::tune::{self, Kind, Shape};
use llmrt_plugin::{Error, Host, Level, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Products that are measured unless the option names others: of a model of 7 billion weights, for one token and for a prompt.
const TYPICAL: [Shape; 3] =
    [Shape { k: 4096, m: 4096, n: 1 }, Shape { k: 4096, m: 11008, n: 1 }, Shape { k: 4096, m: 4096, n: 256 }];

/// Small ones that distinguish right from wrong.
const SMALL: [Shape; 2] = [Shape { k: 256, m: 96, n: 1 }, Shape { k: 128, m: 64, n: 3 }];

/// What the options request.
#[derive(Clone, Debug, Default)]
pub struct Requested {
    /// `cann.nz`.
    nz: Option<bool>,
    /// `cann.columns`.
    columns: Option<bool>,
    /// `cann.tune`: the products to measure.
    shapes: Option<Vec<Shape>>,
    /// `cann.tune_file`, or a file in the folder of caches; none: nothing is remembered.
    file: Option<PathBuf>,
}

impl Requested {
    /// Reads the options.
    pub fn parse(option: impl Fn(&str) -> Option<String>) -> Result<Requested> {
        let flag = |key: &str| match option(key).as_deref().map(str::trim) {
            None => Ok(None),
            Some("1") => Ok(Some(true)),
            Some("0") => Ok(Some(false)),
            Some(text) => Err(Error::invalid(format!("option {key}={text}: expected 1 or 0"))),
        };
        let shapes = match option("cann.tune").as_deref().map(str::trim) {
            None | Some("0") => None,
            Some("1") => Some(TYPICAL.to_vec()),
            Some(text) => Some(shapes(text).ok_or_else(|| {
                let expected =
                    "expected 1, 0, or products as 4096x11008x1+4096x4096x256: multiples of 32, then columns";
                Error::invalid(format!("option cann.tune={text}: {expected}"))
            })?),
        };
        let file = option("cann.tune_file").map(PathBuf::from).or_else(remember::usual_file);
        Ok(Requested { nz: flag("cann.nz")?, columns: flag("cann.columns")?, shapes, file })
    }

    /// The layouts for an open card.
    pub fn choose(&self, host: Host, runtime: &Arc<Runtime>, device: i32, chip: Chip) -> Choice {
        let some = self.nz == Some(true) || self.columns == Some(true) || self.shapes.is_some();
        if !some {
            return Choice::default();
        }
        let log = |level, text: &str| host.log(level, "cann", text);
        let mut stream = match CardStream::new(host, runtime, device, chip, None, 0) {
            Ok(stream) => stream,
            Err(e) => {
                log(Level::Warn, &format!("weights stay in their usual layouts: {}", e.message));
                return Choice::default();
            }
        };
        let tuned =
            self.shapes.as_ref().map(|shapes| self.tuned(host, &mut stream, shapes)).unwrap_or_default();
        let mut take = |option: &str, requested: Option<bool>, kind: Kind, tuned: bool| match requested {
            Some(true) => {
                match SMALL.iter().try_for_each(|shape| tune::check(&mut stream, kind, true, *shape)) {
                    Ok(()) => true,
                    Err(why) => {
                        log(
                            Level::Warn,
                            &format!("{option}=1 has no effect: {}: {}", kind.name(true), why.message),
                        );
                        false
                    }
                }
            }
            Some(false) => false,
            None => tuned,
        };
        Choice {
            nz: take("cann.nz", self.nz, Kind::Half, tuned.nz),
            columns: take("cann.columns", self.columns, Kind::Int4, tuned.columns)
                && take("cann.columns", Some(true), Kind::Int8, true),
        }
    }

    /// What was remembered for this chip, release and products, or else is measured now.
    fn tuned(&self, host: Host, stream: &mut CardStream, shapes: &[Shape]) -> Choice {
        let (soc, release) = (stream.runtime.soc_name(), stream.runtime.release());
        let text = shapes.iter().map(Shape::to_string).collect::<Vec<_>>().join("+");
        let of = remember::Key { soc: soc.clone(), release: release.clone(), shapes: text };
        let log = |level, text: String| {
            host.log(level, "cann", &format!("layouts of weights on {soc}, {release}: {text}"))
        };
        if let Some((file, choice)) =
            self.file.as_ref().and_then(|file| Some((file, remember::read(file, &of)?)))
        {
            log(Level::Info, format!("{}, as {} has it", words(choice), file.display()));
            return choice;
        }
        let (nz, half) = tune::faster(stream, Kind::Half, shapes);
        // One choice for Q4_0 and for Q8_0 and Q5_0, so it is to be the faster one for both.
        let (of_int4, int4) = tune::faster(stream, Kind::Int4, shapes);
        let (of_int8, int8) = tune::faster(stream, Kind::Int8, shapes);
        let choice = Choice { nz, columns: of_int4 && of_int8 };
        log(Level::Info, format!("{}, measured: {half}; 4 bits: {int4}; 8 bits: {int8}", words(choice)));
        if let Some(file) = &self.file
            && let Err(e) = remember::write(file, &of, choice)
        {
            log(
                Level::Warn,
                format!("{} cannot be written, and the next start measures again: {e}", file.display()),
            );
        }
        choice
    }
}

fn words(choice: Choice) -> String {
    format!("{}, {}", Kind::Half.name(choice.nz), Kind::Int4.name(choice.columns))
}

/// `KxMxN+KxMxN`.
fn shapes(text: &str) -> Option<Vec<Shape>> {
    let one = |text: &str| {
        let numbers: Vec<i64> = text.split('x').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
        let [k, m, n] = numbers[..] else { return None };
        let whole = |n: i64| (1..=65_504).contains(&n) && n % 32 == 0;
        (whole(k) && k > 32 && whole(m) && (1..=4096).contains(&n)).then_some(Shape { k, m, n })
    };
    text.split('+').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_form_is_named() {
        for (key, value) in [("cann.nz", "yes"), ("cann.columns", "2"), ("cann.tune", "4096")] {
            let e = Requested::parse(|name| (name == key).then(|| value.into())).unwrap_err();
            assert!(e.message.contains(&format!("option {key}={value}: expected")), "{}", e.message);
        }
        let requested = Requested::parse(|name| (name == "cann.nz").then(|| "1".into())).unwrap();
        assert!(requested.nz == Some(true) && requested.columns.is_none() && requested.shapes.is_none());
    }

    #[test]
    fn products_to_measure_are_read_from_the_option() {
        let two = shapes("4096x11008x1+128 x 64 x 8").unwrap();
        assert_eq!(two[1], Shape { k: 128, m: 64, n: 8 });
        assert_eq!(two[0].to_string(), "4096x11008x1");
        for wrong in ["", "yes", "4096x4096", "100x64x1", "32x64x1", "128x64x0", "128x64x1+", "-128x64x1"] {
            assert_eq!(shapes(wrong), None, "{wrong}");
        }
    }
}
