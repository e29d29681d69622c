//! What came of a run: counts, failures, and the tables, as text, JSON and Markdown.

use crate::catalogue::Entry;
use crate::level::Level;
use crate::outcome::Outcome;
use crate::support::Support;
use llmrt_abi::Op;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What came of a run.
pub struct Report {
    /// Plugin and device, as a worker described them, or why it could not.
    pub about: Result<Json, String>,
    /// SHA-256 of the plugin's file.
    pub sha256: String,
    /// Every case of the run.
    pub cases: Vec<(Entry, Outcome)>,
    /// How long it took.
    pub time: Duration,
    /// Source of the random numbers.
    pub seed: u64,
}

/// Cases by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Passed or failed.
    pub run: usize,
    /// Failed.
    pub failed: usize,
    /// Not run, for lack of capability.
    pub skipped: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed(_) => self.run += 1,
            Outcome::Failed(_) => (self.run, self.failed) = (self.run + 1, self.failed + 1),
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }

    fn json(self) -> Json {
        json!({ "run": self.run, "failed": self.failed, "skipped": self.skipped })
    }
}

impl Report {
    /// All cases.
    pub fn total(&self) -> Counts {
        self.count(|_| ()).remove(&()).unwrap_or_default()
    }

    fn count<K: Ord>(&self, key: impl Fn(&Entry) -> K) -> BTreeMap<K, Counts> {
        let mut counts: BTreeMap<K, Counts> = BTreeMap::new();
        self.cases.iter().for_each(|(entry, outcome)| counts.entry(key(entry)).or_default().add(outcome));
        counts
    }

    fn failed(&self) -> impl Iterator<Item = (String, &str)> {
        self.cases.iter().filter_map(|(entry, outcome)| match outcome {
            Outcome::Failed(why) => Some((entry.id(), why.as_str())),
            _ => None,
        })
    }

    /// Reasons of what was skipped, with how many cases each has, most first.
    fn skipped(&self) -> Vec<(String, usize)> {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, outcome) in &self.cases {
            if let Outcome::Skipped(why) = outcome {
                *reasons.entry(why).or_default() += 1;
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().map(|(why, n)| (why.to_string(), n)).collect();
        reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        reasons
    }

    /// Op × type, as far as L3 was run.
    pub fn support(&self) -> Support {
        let mut support = Support::default();
        for (entry, outcome) in self.cases.iter().filter(|(entry, _)| entry.level == Level::L3) {
            if let (Some(op), Some(dtype)) = (Op::from_name(&entry.group), entry.dtype) {
                let skipped = matches!(outcome, Outcome::Skipped(_));
                support.add(op, dtype, !skipped, matches!(outcome, Outcome::Failed(_)));
            }
        }
        support
    }

    /// Rows of L6.
    fn perf(&self) -> Vec<Json> {
        let measured = self.cases.iter().filter(|(entry, _)| entry.level == Level::L6);
        let texts = measured.filter_map(|(_, outcome)| match outcome {
            Outcome::Passed(text) => Some(text),
            _ => None,
        });
        texts.filter_map(|text| serde_json::from_str(text).ok()).collect()
    }

    fn about(&self, key: &str) -> String {
        let text = self.about.as_ref().ok().and_then(|about| about.get(key)?.as_str());
        text.unwrap_or("(unknown)").to_string()
    }

    /// The whole report as JSON.
    pub fn json(&self) -> Json {
        let total = self.total();
        let failed: Vec<_> =
            self.failed().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
        let skipped: Vec<_> =
            self.skipped().into_iter().map(|(reason, n)| json!({ "reason": reason, "cases": n })).collect();
        let ops = self.count(|entry| Op::from_name(&entry.group).map(|_| entry.group.clone()));
        let ops: Map<_, _> = ops.into_iter().filter_map(|(op, counts)| Some((op?, counts.json()))).collect();
        let levels: Map<_, _> = self
            .count(|entry| entry.level)
            .into_iter()
            .map(|(level, counts)| (level.to_string(), counts.json()))
            .collect();
        json!({
            "plugin": self.about("plugin"), "device": self.about("device"), "sha256": self.sha256,
            "llmrt": env!("CARGO_PKG_VERSION"),
            "about": self.about.clone().unwrap_or_else(Json::String),
            "cases_run": total.run, "cases_failed": total.failed, "cases_skipped": total.skipped,
            "failed": failed, "skipped": skipped, "ops": ops, "levels": levels,
            "support": self.support().json(), "perf": self.perf(),
            "seed": self.seed, "seconds": self.time.as_secs_f64(),
        })
    }

    /// For a person at a terminal.
    pub fn text(&self) -> String {
        const MAX_SHOWN: usize = 100;
        let mut text = String::new();
        let failed: Vec<_> = self.failed().collect();
        // Cases that fail for one reason stand together, with the reason given once.
        for same in failed[..failed.len().min(MAX_SHOWN)].chunk_by(|a, b| a.1 == b.1) {
            same.iter().for_each(|(name, _)| text += &format!("FAILED {name}\n"));
            let _ = writeln!(text, "       {}", same[0].1);
        }
        if failed.len() > MAX_SHOWN {
            let _ = writeln!(text, "… and {} more: --json lists all", failed.len() - MAX_SHOWN);
        }
        for (why, n) in self.skipped() {
            let _ = writeln!(text, "skipped {n}: {why}");
        }
        for row in self.perf() {
            let _ = writeln!(text, "{}", perf_line(&row));
        }
        let _ = writeln!(text, "{:<36}{:>8}{:>8}{:>8}", "level", "run", "failed", "skipped");
        for (level, c) in self.count(|entry| entry.level) {
            let name = format!("{level} {}", level.title());
            let _ = writeln!(text, "{name:<36}{:>8}{:>8}{:>8}", c.run, c.failed, c.skipped);
        }
        let total = self.total();
        let _ = writeln!(
            text,
            "{} on {}: {} cases run, {} failed, {} skipped, in {:.1} s",
            self.about("plugin"),
            self.about("device"),
            total.run,
            total.failed,
            total.skipped,
            self.time.as_secs_f64()
        );
        text
    }

    /// For a vendor to publish.
    pub fn markdown(&self) -> String {
        let total = self.total();
        let mut text = format!(
            "# Conformance of {} {}\n\nDevice: {}, {} ({}). {} cases run, {} failed, {} skipped for lack of capability.\n\n\
             Tested by llmrt {}, seed {}; SHA-256 of the plugin's file: `{}`.\n\n",
            self.about("plugin"),
            self.about("version"),
            self.about("device"),
            self.about("description"),
            self.about("arch"),
            total.run,
            total.failed,
            total.skipped,
            env!("CARGO_PKG_VERSION"),
            self.seed,
            self.sha256
        );
        text += "| level | run | failed | skipped |\n|---|--:|--:|--:|\n";
        for (level, c) in self.count(|entry| entry.level) {
            let _ =
                writeln!(text, "| {level} {} | {} | {} | {} |", level.title(), c.run, c.failed, c.skipped);
        }
        if total.failed > 0 {
            text += "\n## Failed\n\n";
            self.failed().for_each(|(name, why)| text += &format!("- {name}: {why}\n"));
        }
        if self.cases.iter().any(|(entry, _)| entry.level == Level::L3) {
            text += "\n## Ops and types\n\n";
            text += &self.support().markdown();
        }
        let perf = self.perf();
        if !perf.is_empty() {
            text += "\n## Throughput\n\n| op | case | µs | GB/s | GFLOP/s |\n|---|---|--:|--:|--:|\n";
            for row in perf {
                let n = |key: &str| row[key].as_f64().unwrap_or(0.0);
                let (op, case) = (row["op"].as_str().unwrap_or(""), row["case"].as_str().unwrap_or(""));
                let (us, gb) = (n("best_us"), n("gb_s"));
                let gf = row["gflop_s"].as_f64().map_or("–".into(), |n| format!("{n:.2}"));
                let _ = writeln!(text, "| {op} | {case} | {us:.1} | {gb:.2} | {gf} |");
            }
        }
        text
    }
}

fn perf_line(row: &Json) -> String {
    let n = |key: &str| row[key].as_f64().unwrap_or(0.0);
    let name = format!("{} {}", row["op"].as_str().unwrap_or(""), row["case"].as_str().unwrap_or(""));
    let flops = row["gflop_s"].as_f64().map(|n| format!("{n:>10.2} GFLOP/s")).unwrap_or_default();
    format!("{name:<64}{:>12.1} µs{:>10.2} GB/s{flops}", n("best_us"), n("gb_s"))
}
