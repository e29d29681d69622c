//! `abi/abi.lock`: everything about the ABI that a plugin built today relies on, one line each, and what changed.
//!
//! A line is a key and a value. What is in the lock may not change or go away; [`judge`] has what may come.

use crate::header::c_name;
use llmrt_abi::{ABI_MAJOR, DType, Op, QUERY_SYMBOL, Reason, Scope, Status, layout, op, types};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Where the lock stands in the repository.
pub const LOCK: &str = "abi/abi.lock";

const INTRODUCTION: &str = "\
# What plugins built against the header rely on. Written by `cargo ci header`, which appends what was added and
# refuses what would break them; `cargo ci header --break` takes a break in, while nothing is promised (major 0).
";

/// The lock's text for the ABI of this build, given the text of its header.
pub fn generate(header: &str) -> String {
    let mut lock = Lock(INTRODUCTION.into());
    lock.line("symbol", QUERY_SYMBOL);
    lock.line("major", ABI_MAJOR);
    lock.line("fingerprint", format_args!("{:#018x}", layout::FINGERPRINT));
    structs(&mut lock, header);
    params(&mut lock);
    for op in Op::ALL {
        let info = op.info();
        lock.line(format_args!("op {}", info.name), info.id);
        lock.line(format_args!("op {} version", info.name), info.version);
        lock.line(format_args!("op {} min_src", info.name), info.min_src);
        lock.line(format_args!("op {} max_src", info.name), info.max_src);
    }
    for t in DType::ALL.iter().map(|t| t.info()) {
        let blocks = format!("{}, {} elements in {} bytes", t.id, t.block_elems, t.block_bytes);
        lock.line(format_args!("dtype {}", t.name), blocks);
    }
    Status::TABLE.iter().for_each(|(name, code)| lock.line(format_args!("status {name}"), code));
    Scope::TABLE.iter().for_each(|(name, code)| lock.line(format_args!("scope {name}"), code));
    Reason::TABLE.iter().for_each(|(name, code)| lock.line(format_args!("reason {name}"), code));
    types::CONSTANTS.iter().for_each(|(name, value)| lock.line(format_args!("constant {name}"), value));
    lock.0
}

/// Sizes, alignments, offsets; and the declarations, because a function with another parameter has the same offset.
fn structs(lock: &mut Lock, header: &str) {
    for s in layout::STRUCTS {
        let c = c_name(s.name);
        lock.line(format_args!("struct {c} size"), s.size);
        lock.line(format_args!("struct {c} align"), s.align);
        let declarations = declarations(header, &c);
        for (i, (field, offset)) in s.fields.iter().enumerate() {
            let declaration = declarations.get(i).map_or("", String::as_str);
            lock.line(format_args!("field {c}.{field}"), format_args!("{offset}: {declaration}"));
        }
    }
}

/// The fields of a struct as the header declares them, without comments and line breaks.
fn declarations(header: &str, c_name: &str) -> Vec<String> {
    let body = header.split_once(&format!("typedef struct {c_name} {{")).map_or("", |(_, rest)| rest);
    let body = body.split_once(&format!("}} {c_name};")).map_or("", |(body, _)| body);
    let code: Vec<&str> = body.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    code.join(" ").split(';').map(words).filter(|text| !text.is_empty()).collect()
}

fn params(lock: &mut Lock) {
    for p in op::PARAMS {
        for (i, (field, ty, _)) in p.fields.iter().enumerate() {
            lock.line(format_args!("params {}.{field}", p.c_name), format_args!("{}: {ty}", 4 * i));
        }
    }
}

struct Lock(String);

impl Lock {
    fn line(&mut self, key: impl std::fmt::Display, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key} = {value}");
    }
}

/// How a build's ABI differs from the lock.
#[derive(Debug, Default, PartialEq)]
pub struct Differences {
    /// What plugins built before would trip over, one line each.
    pub breaks: Vec<String>,
    /// What they do not depend on.
    pub additions: Vec<String>,
}

/// Compares the committed lock with that of this build.
pub fn compare(committed: &str, now: &str) -> Differences {
    let (before, after) = (entries(committed), entries(now));
    let mut d = Differences::default();
    for (key, old) in &before {
        match after.get(key) {
            None => d.breaks.push(format!("gone: {key} = {old}")),
            Some(new) if new != old => {
                let to = if grows(key, old, new) { &mut d.additions } else { &mut d.breaks };
                to.push(format!("changed: {key} = {old}, now {new}"));
            }
            Some(_) => {}
        }
    }
    for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        let (to, word) = match judge(key, new, &before) {
            true => (&mut d.additions, "added"),
            false => (&mut d.breaks, "inserted"),
        };
        to.push(format!("{word}: {key} = {new}"));
    }
    d
}

/// Keys and values of a lock's text.
fn entries(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = ")).collect()
}

/// Numbers that may become larger: sizes of structs that carry theirs, and the most sources of an op.
fn grows(key: &str, old: &str, new: &str) -> bool {
    let (Ok(old), Ok(new)) = (old.parse::<u64>(), new.parse::<u64>()) else { return false };
    let growable = match key.split(' ').collect::<Vec<_>>()[..] {
        ["struct", name, "size"] => layout::STRUCTS.iter().any(|s| c_name(s.name) == name && s.may_grow()),
        ["op", _, "max_src"] => true,
        _ => false,
    };
    growable && new > old
}

/// Whether something new is an addition: anything but a field before the end its struct or params had.
fn judge(key: &str, value: &str, before: &BTreeMap<&str, &str>) -> bool {
    let Some((kind, field)) = key.split_once(' ').filter(|(kind, _)| matches!(*kind, "field" | "params"))
    else {
        return true;
    };
    let (Some((owner, _)), Some((offset, _))) = (field.split_once('.'), value.split_once(':')) else {
        return true;
    };
    let end = match kind {
        "field" => before.get(format!("struct {owner} size").as_str()).and_then(|size| size.parse().ok()),
        _ => {
            let start = format!("params {owner}.");
            Some(4 * before.keys().filter(|key| key.starts_with(&start)).count() as u64)
        }
    };
    end.is_none_or(|end: u64| offset.parse().is_ok_and(|offset: u64| offset >= end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# comment
struct llmrt_graph size = 72
struct llmrt_verdict size = 16
field llmrt_graph.uid = 24: uint64_t uid
params llmrt_p_scale.scale = 0: f32
op add = 5
op add max_src = 2
";

    /// What replacing a line by others is called.
    fn check(from: &str, to: &str, expected: &str) {
        assert!(BEFORE.contains(from));
        let d = compare(BEFORE, &BEFORE.replace(from, to));
        let lines: Vec<_> = d.breaks.iter().map(|b| format!("BREAK {b}")).chain(d.additions).collect();
        assert_eq!(lines.join("; "), expected);
    }

    #[test]
    fn nothing_changed_is_no_difference() {
        check("# comment\n", "# another\n", "");
    }

    #[test]
    fn what_changes_or_goes_is_a_break_with_a_line_of_its_own() {
        check("op add = 5", "op add = 6", "BREAK changed: op add = 5, now 6");
        check("op add = 5\n", "", "BREAK gone: op add = 5");
        check(
            "24: uint64_t uid",
            "24: int64_t uid",
            "BREAK changed: field llmrt_graph.uid = 24: uint64_t uid, now 24: int64_t uid",
        );
        check(
            "params llmrt_p_scale.scale = 0: f32",
            "params llmrt_p_scale.scale = 0: u32",
            "BREAK changed: params llmrt_p_scale.scale = 0: f32, now 0: u32",
        );
    }

    #[test]
    fn fields_at_the_end_are_additions_and_others_are_not() {
        let uid = "field llmrt_graph.uid = 24: uint64_t uid\n";
        check(
            uid,
            &format!("{uid}field llmrt_graph.extra = 72: uint64_t extra\n"),
            "added: field llmrt_graph.extra = 72: uint64_t extra",
        );
        check(
            uid,
            &format!("{uid}field llmrt_graph.half = 28: uint32_t half\n"),
            "BREAK inserted: field llmrt_graph.half = 28: uint32_t half",
        );
        let scale = "params llmrt_p_scale.scale = 0: f32\n";
        check(
            scale,
            &format!("{scale}params llmrt_p_scale.bias = 4: f32\n"),
            "added: params llmrt_p_scale.bias = 4: f32",
        );
        check(
            scale,
            &format!("{scale}params llmrt_p_scale.bias = 0: f32\n"),
            "BREAK inserted: params llmrt_p_scale.bias = 0: f32",
        );
    }

    #[test]
    fn structs_that_carry_their_size_may_grow() {
        check("graph size = 72", "graph size = 80", "changed: struct llmrt_graph size = 72, now 80");
        check("graph size = 72", "graph size = 64", "BREAK changed: struct llmrt_graph size = 72, now 64");
        check(
            "verdict size = 16",
            "verdict size = 24",
            "BREAK changed: struct llmrt_verdict size = 16, now 24",
        );
        check("max_src = 2", "max_src = 3", "changed: op add max_src = 2, now 3");
    }

    #[test]
    fn new_names_are_additions() {
        check("op add = 5\n", "op add = 5\nop rope_2 = 99\n", "added: op rope_2 = 99");
    }

    #[test]
    fn declarations_are_read_from_the_header() {
        let header = "typedef struct llmrt_x {\n  // a; b\n  uint32_t n;\n  int32_t (*f)(void *a,\n      int b);\n} llmrt_x;";
        assert_eq!(declarations(header, "llmrt_x"), ["uint32_t n", "int32_t (*f)(void *a, int b)"]);
    }

    #[test]
    fn the_lock_of_this_build_has_a_declaration_for_every_field() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let header = crate::header::generate(root).unwrap();
        for s in layout::STRUCTS {
            let found = declarations(&header, &c_name(s.name));
            let names = s.fields.iter().map(|(name, _)| *name);
            assert_eq!(found.len(), s.fields.len(), "{}", s.name);
            assert!(found.iter().zip(names).all(|(d, name)| d.contains(name)), "{}: {found:?}", s.name);
        }
        let committed = std::fs::read_to_string(root.join(LOCK)).unwrap_or_default();
        assert_eq!(compare(&committed, &generate(&header)), Differences::default(), "run `cargo ci header`");
    }
}
