//! Folders with a file for each layer, in the order of their numbers.

use crate::Error;

/// The names `PREFIX<i>SUFFIX` among these, for i from 0 on without a gap; other names are left out.
///
/// By number: as texts, `activation_10.pt` would come before `activation_2.pt`.
pub fn by_number<'a>(
    names: impl IntoIterator<Item = &'a str>,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<&'a str>, Error> {
    let number = |name: &'a str| {
        let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| Some((digits.parse::<u64>().ok()?, name))).flatten()
    };
    let mut found: Vec<(u64, &str)> = names.into_iter().filter_map(number).collect();
    found.sort_unstable();
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::DoubledFile { first: pair[0].1.into(), second: pair[1].1.into() });
    }
    if let Some((i, (_, name))) = found.iter().enumerate().find(|(i, (number, _))| *i as u64 != *number) {
        return Err(Error::MissingFile { missing: format!("{prefix}{i}{suffix}"), found: (*name).into() });
    }
    match found.is_empty() {
        true => Err(Error::NoFiles { pattern: format!("{prefix}<layer>{suffix}") }),
        false => Ok(found.into_iter().map(|(_, name)| name).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], expected: Result<&[&str], &str>) {
        let found = by_number(names.iter().copied(), "activation_", ".pt");
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{e}"),
            (found, _) => panic!("{names:?}: {found:?}"),
        }
    }

    #[test]
    fn ten_comes_after_two() {
        let names: Vec<String> = (0..12).rev().map(|i| format!("activation_{i}.pt")).collect();
        let expected: Vec<String> = (0..12).map(|i| format!("activation_{i}.pt")).collect();
        let as_strs = |names: &[String]| names.iter().map(|n| n.clone().leak() as &str).collect::<Vec<_>>();
        check(&as_strs(&names), Ok(&as_strs(&expected)));
    }

    #[test]
    fn other_names_are_left_out() {
        let others =
            ["config.json", "activation_.pt", "activation_1.pt.bak", "activation_x.pt", "activation_-1.pt"];
        check(&[&others[..], &["activation_0.pt"]].concat(), Ok(&["activation_0.pt"]));
        check(&others, Err("no file activation_<layer>.pt"));
    }

    #[test]
    fn gaps_and_doubles_are_refused() {
        check(
            &["activation_0.pt", "activation_2.pt"],
            Err("activation_1.pt is missing, but there is activation_2.pt"),
        );
        check(&["activation_1.pt"], Err("activation_0.pt is missing"));
        check(&["activation_0.pt", "activation_1.pt", "activation_01.pt"], Err("have the same number"));
        check(&["activation_0.pt", "activation_99999999999999999999.pt"], Ok(&["activation_0.pt"]));
    }
}
