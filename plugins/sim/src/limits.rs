//! What a device refuses according to its profile: ops, dtypes, and sizes of operands.

use crate::profile::Profile;
use llmrt_plugin::abi::op::{AttentionParams, PagedMaskParams, RopeParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, TensorView};

/// A choice from a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask<T>(Vec<T>);

impl<T: Copy + PartialEq> Mask<T> {
    /// Everything.
    pub fn all(table: &[T]) -> Mask<T> {
        Mask(table.to_vec())
    }

    /// Reads names: `*` adds the whole table, `name` one row, `-name` takes one out.
    pub fn parse(text: &str, table: &[T], from_name: impl Fn(&str) -> Option<T>) -> Result<Mask<T>, String> {
        let mut rows = Vec::new();
        for word in text.split_whitespace() {
            let named = |name| from_name(name).ok_or_else(|| format!("there is no `{name}`"));
            match word.strip_prefix('-') {
                Some(name) => {
                    let row = named(name)?;
                    rows.retain(|r| *r != row);
                }
                None if word == "*" => rows = table.to_vec(),
                None => rows.push(named(word)?),
            }
        }
        Ok(Mask(rows))
    }

    /// Whether it is in.
    pub fn has(&self, row: T) -> bool {
        self.0.contains(&row)
    }
}

/// A rule for the operands of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// A dim may have at most so many elements.
    AtMost(Operand, usize, usize),
    /// A dim is a multiple of a number.
    Multiple(Operand, usize, usize),
    /// The dtype is one of these.
    Types(Operand, Vec<DType>),
    /// An optional source is left out.
    Absent(Operand),
    /// `rope` turns whole heads.
    FullWidth,
    /// `attention` without soft-cap.
    NoSoftcap,
    /// `attention` and `paged_mask` of all keys up to the query, or those in a window.
    Causal,
}

/// A source, or the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `srcN`
    Src(usize),
    /// `dst`
    Dst,
}

impl Limit {
    /// Reads a rule: `src0.ne0<=65535`, `src0.ne0%16`, `src1.type=f16|bf16`, `src6.absent`, `full_width`, `no_softcap`,
    /// `causal`.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let bad =
            || format!("`{text}`: expected a rule such as src0.ne0<=65535, src0.ne0%16 or src1.type=f16");
        match text {
            "full_width" => return Ok(Limit::FullWidth),
            "no_softcap" => return Ok(Limit::NoSoftcap),
            "causal" => return Ok(Limit::Causal),
            _ => {}
        }
        let (operand, rule) = text.split_once('.').ok_or_else(bad)?;
        let operand = Operand::parse(operand).ok_or_else(bad)?;
        if rule == "absent" {
            return Ok(Limit::Absent(operand));
        }
        if let Some(names) = rule.strip_prefix("type=") {
            let types = names.split('|').map(|n| DType::from_name(n).ok_or_else(bad));
            return Ok(Limit::Types(operand, types.collect::<Result<_, _>>()?));
        }
        let dim_and = |separator| -> Option<(usize, usize)> {
            let (dim, n) = rule.strip_prefix("ne")?.split_once(separator)?;
            Some((dim.parse().ok().filter(|d| *d < 4)?, n.parse().ok().filter(|n| *n > 0)?))
        };
        let at_most = dim_and("<=").map(|(dim, n)| Limit::AtMost(operand, dim, n));
        at_most.or_else(|| dim_and("%").map(|(dim, n)| Limit::Multiple(operand, dim, n))).ok_or_else(bad)
    }

    /// Why a node breaks the rule, if it does.
    fn refuses(&self, node: &NodeView<'_>) -> Option<Reason> {
        let broken = |yes: bool, reason| yes.then_some(reason);
        match self {
            Limit::AtMost(t, dim, most) => broken(t.of(node)?.ne()[*dim] > *most, Reason::Shape),
            Limit::Multiple(t, dim, n) => broken(!t.of(node)?.ne()[*dim].is_multiple_of(*n), Reason::Shape),
            Limit::Types(t, types) => {
                broken(t.of(node)?.dtype().is_none_or(|t| !types.contains(&t)), Reason::Type)
            }
            Limit::Absent(t) => broken(t.of(node).is_some(), Reason::Param),
            Limit::FullWidth => {
                let params = RopeParams::from_bytes(node.params_bytes())?;
                broken(Operand::Src(0).of(node)?.ne()[0] != params.n_dims as usize, Reason::Param)
            }
            Limit::NoSoftcap => {
                let params = AttentionParams::from_bytes(node.params_bytes())?;
                broken(params.softcap != 0.0, Reason::Param)
            }
            Limit::Causal => {
                let params = node.params_bytes();
                let causal = match node.op() {
                    Some(Op::PagedMask) => {
                        PagedMaskParams::from_bytes(params).map(|p| (p.bidirectional, p.chunk))
                    }
                    _ => AttentionParams::from_bytes(params).map(|p| (p.bidirectional, p.chunk)),
                };
                broken(causal != Some((0, 0)), Reason::Param)
            }
        }
    }
}

impl Operand {
    fn parse(text: &str) -> Option<Operand> {
        match text {
            "dst" => Some(Operand::Dst),
            _ => text.strip_prefix("src")?.parse().ok().map(Operand::Src),
        }
    }

    fn of<'a>(&self, node: &NodeView<'a>) -> Option<TensorView<'a>> {
        match self {
            Operand::Src(i) => node.src(*i),
            Operand::Dst => Some(node.dst()),
        }
    }
}

impl Profile {
    /// Why the simulated chip does not run a node, if it does not.
    pub fn refuses(&self, node: &NodeView<'_>) -> Option<Reason> {
        let Some(op) = node.op().filter(|op| self.ops.has(*op)) else { return Some(Reason::Op) };
        let own = self.op_dtypes.iter().rev().find(|(o, _)| *o == op).map(|(_, mask)| mask);
        let dtypes = own.unwrap_or(&self.dtypes);
        let mut operands = (0..node.n_src()).filter_map(|i| node.src(i)).chain([node.dst()]);
        if operands.any(|t| t.dtype().is_none_or(|t| !dtypes.has(t))) {
            return Some(Reason::Type);
        }
        self.limits.iter().filter(|(o, _)| *o == op).find_map(|(_, limit)| limit.refuses(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let check = |text: &str, expected: Limit| assert_eq!(Limit::parse(text).unwrap(), expected);
        check("src0.ne1<=65535", Limit::AtMost(Operand::Src(0), 1, 65535));
        check("dst.ne0%16", Limit::Multiple(Operand::Dst, 0, 16));
        check("src1.type=f16|bf16", Limit::Types(Operand::Src(1), vec![DType::F16, DType::BF16]));
        check("src6.absent", Limit::Absent(Operand::Src(6)));
        for text in ["src0.ne4<=1", "src.ne0<=1", "dst.ne0%0", "dst.type=f17", "dst"] {
            assert!(Limit::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn masks_add_and_take_away() {
        let mask = Mask::parse("* -attention", Op::ALL, Op::from_name).unwrap();
        assert!(mask.has(Op::Add) && !mask.has(Op::Attention));
    }
}
