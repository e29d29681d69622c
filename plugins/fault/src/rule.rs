//! What goes wrong, and when: `CALL[OP]@N:KIND`, several separated by commas.
//!
//! - `CALL`: a function of the tables, such as `buffer_alloc`, `set`, `get`, `synchronize`, `compute` (plans too).
//! - `[OP]`, for `compute`: only graphs with such a node count; an op's name, or any number.
//! - `@N`: the N-th such call, from 1; `@N+`: that and all later ones; without it, all.
//! - `KIND`: `oom`; `error:call`, `error:stream`, `error:device`, `error:plugin`; `unsupported` (names the node);
//!   `nan` or `flip`: the first value of a result becomes NaN, or one bit of it flips (`compute`, `get`);
//!   `hang`; `abort`; `panic`, which the kit turns into an error of plugin scope.
//!
//! `compute[glu]@2:error:stream` fails the second graph with a gated unit so that its stream must be recreated.

use llmrt_plugin::{Error, GraphView, Op, Result, Scope, Status};
use std::sync::atomic::{AtomicU64, Ordering};

/// All rules.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    call: String,
    /// Number of the op.
    op: Option<u32>,
    first: u64,
    last: u64,
    kind: Kind,
    n_calls: AtomicU64,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An out-of-memory error.
    Oom,
    /// An error of this scope.
    Error(Scope),
    /// The plugin retracts its support.
    Unsupported,
    /// A value becomes NaN.
    Nan,
    /// A bit flips.
    Flip,
    /// It never returns.
    Hang,
    /// The process ends.
    Abort,
    /// A Rust panic.
    Panic,
}

/// Calls that rules may name.
const CALLS: [&str; 21] = [
    "init",
    "open",
    "memory",
    "supports",
    "buffer_alloc",
    "backend_create",
    "event_create",
    "import_host",
    "set",
    "get",
    "fill",
    "seal",
    "copy",
    "compute",
    "synchronize",
    "set_async",
    "get_async",
    "copy_async",
    "event_record",
    "event_wait",
    "plan_create",
];

/// What is left to do wrong once the call has been made, and on the result of which op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// NaN or flip.
    pub kind: Kind,
    /// Its number; `None`: of the last node.
    pub op: Option<u32>,
}

impl Rules {
    /// Reads rules.
    pub fn parse(text: &str) -> Result<Rules> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(Rule::parse).collect::<Result<_>>().map(Rules)
    }

    /// Counts a call and lets it fail if a rule requires it. Returns the damage to do to its result.
    pub fn fail(&self, call: &str, graph: Option<&GraphView<'_>>) -> Result<Option<Damage>> {
        // All rules count the call, whichever of them decides.
        let hits: Vec<_> = self.0.iter().filter_map(|rule| rule.hit(call, graph)).collect();
        match hits.first() {
            None => Ok(None),
            Some(hit) => hit.act(call),
        }
    }
}

/// A rule that is due.
struct Hit {
    kind: Kind,
    op: Option<u32>,
    node: usize,
}

impl Hit {
    fn act(&self, call: &str) -> Result<Option<Damage>> {
        let message = format!("injected into {call}");
        match self.kind {
            Kind::Oom => {
                Err(Error { bytes: Some((1 << 40, 4096)), ..Error::new(Status::OomDevice, message) })
            }
            Kind::Error(Scope::Device) => Err(Error::device_lost(message)),
            Kind::Error(scope) => Err(Error::internal(message).scope(scope)),
            Kind::Unsupported => Err(Error::unsupported(message).at_node(self.node)),
            Kind::Hang => loop {
                std::thread::park();
            },
            Kind::Abort => std::process::abort(),
            Kind::Panic => panic!("{message}"),
            kind @ (Kind::Nan | Kind::Flip) => Ok(Some(Damage { kind, op: self.op })),
        }
    }
}

impl Rule {
    /// Counts a call if it is of the rule's kind; whether it is one that goes wrong.
    fn hit(&self, call: &str, graph: Option<&GraphView<'_>>) -> Option<Hit> {
        let is_op = |op| graph?.nodes().position(|node| node.op_id() == op);
        let node = match self.op {
            _ if self.call != call => return None,
            Some(op) => is_op(op)?,
            None => 0,
        };
        let n = self.n_calls.fetch_add(1, Ordering::Relaxed) + 1;
        (self.first..=self.last).contains(&n).then_some(Hit { kind: self.kind, op: self.op, node })
    }

    fn parse(text: &str) -> Result<Rule> {
        let bad = |problem: String| Error::invalid(format!("fault.rule `{text}`: {problem}"));
        let shape = || bad("expected CALL[OP]@N:KIND, as in compute[mul_mat]@3:error:stream".into());
        let (place, kind) = text.split_once(':').ok_or_else(shape)?;
        let (call, n) = place.split_once('@').map_or((place, None), |(call, n)| (call, Some(n)));
        let (call, op) = match call.split_once('[') {
            None => (call, None),
            Some((call, op)) => {
                let name = op.strip_suffix(']').ok_or_else(shape)?;
                let id = Op::from_name(name).map(Op::id).or_else(|| name.parse().ok());
                (call, Some(id.ok_or_else(|| bad(format!("there is no op `{name}`")))?))
            }
        };
        if !CALLS.contains(&call) {
            return Err(bad(format!("there is no call `{call}`; there are {}", CALLS.join(", "))));
        }
        let (first, last) = match n {
            None => (1, u64::MAX),
            Some(n) => {
                let digits = n.strip_suffix('+').unwrap_or(n);
                let first = digits.parse().map_err(|_| bad(format!("`@{n}`: expected @N or @N+")))?;
                (first, if digits == n { first } else { u64::MAX })
            }
        };
        let kind = Kind::parse(kind).ok_or_else(|| bad(format!("there is no kind `{kind}`")))?;
        Ok(Rule { call: call.into(), op, first, last, kind, n_calls: AtomicU64::new(0) })
    }
}

impl Kind {
    fn parse(text: &str) -> Option<Kind> {
        Some(match text {
            "oom" => Kind::Oom,
            "error:call" => Kind::Error(Scope::Call),
            "error:stream" => Kind::Error(Scope::Stream),
            "error:device" => Kind::Error(Scope::Device),
            "error:plugin" => Kind::Error(Scope::Plugin),
            "unsupported" => Kind::Unsupported,
            "nan" => Kind::Nan,
            "flip" => Kind::Flip,
            "hang" => Kind::Hang,
            "abort" => Kind::Abort,
            "panic" => Kind::Panic,
            _ => return None,
        })
    }
}

impl Damage {
    /// Does it to the first bytes of a value: all ones are NaN in every float type; the flipped bit is a high one of
    /// the exponent.
    pub fn apply(&self, value: &mut [u8]) {
        match (self.kind, value.last_mut()) {
            (Kind::Flip, Some(byte)) => *byte ^= 0x20,
            _ => value.fill(0xff),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to the first five calls of `set`.
    fn fates(rules: &str) -> String {
        let rules = Rules::parse(rules).unwrap();
        let fate = |_| match rules.fail("set", None) {
            Ok(None) => '.',
            Ok(Some(_)) => 'd',
            Err(e) if e.status == Status::OomDevice => 'm',
            Err(_) => 'e',
        };
        (0..5).map(fate).collect()
    }

    #[test]
    fn rules_count_the_calls_they_name() {
        assert_eq!(fates(""), ".....");
        assert_eq!(fates("set@2:oom"), ".m...");
        assert_eq!(fates("set@3+:error:call"), "..eee");
        assert_eq!(fates("set:nan"), "ddddd");
        assert_eq!(fates("get@1:oom, set@4:flip"), "...d.");
        assert_eq!(fates("set@1:error:device,set@2:oom"), "em...");
    }

    fn check(rules: &str, words: &str) {
        let e = Rules::parse(rules).unwrap_err();
        assert!(e.message.contains(words), "{e}");
    }

    #[test]
    fn what_is_no_rule_is_answered_with_what_would_be() {
        check("nonsense", "expected CALL[OP]@N:KIND");
        check("walk@1:oom", "there is no call `walk`; there are init, open");
        check("set@x:oom", "expected @N or @N+");
        check("set@1:maybe", "there is no kind `maybe`");
        check("compute[fly]:nan", "there is no op `fly`");
        check("compute[add:nan", "expected CALL[OP]@N:KIND");
    }

    #[test]
    fn a_damaged_value_is_not_the_same() {
        let damaged = |kind| {
            let mut bytes = 1.5f32.to_le_bytes();
            Damage { kind, op: None }.apply(&mut bytes);
            f32::from_le_bytes(bytes)
        };
        assert!(damaged(Kind::Nan).is_nan());
        assert!(damaged(Kind::Flip).is_finite() && damaged(Kind::Flip) != 1.5);
    }
}
