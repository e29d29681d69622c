//! `llmrt ps`: the models that a server has loaded.

use crate::args::{Global, ServerArgs};
use crate::clock;
use crate::cmd::Command;
use crate::error::Result;
use crate::output::{self, bytes};
use crate::remote::Remote;
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// List the models that a running server has loaded.
///
/// NAME, ID (the beginning of the digest), SIZE, PROCESSOR (the devices), CONTEXT (tokens), and UNTIL: when a model is unloaded
/// if no request comes.
#[derive(Args, Debug)]
pub struct Ps {
    /// The server's JSON: an array with an object per model, `expires_at` in UTC.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl Command for Ps {
    const NAME: &'static str = "ps";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, _: &Global) -> Result<()> {
        let remote = Remote::new(&self.server, PATIENCE)?;
        let mut answer = remote.get("/api/ps").map_err(|e| remote.error(e))?;
        let models = answer["models"].take();
        if self.json {
            return Ok(output::json(&models)?);
        }
        let now = clock::seconds();
        let rows: Vec<_> = models.as_array().into_iter().flatten().map(|model| row(model, now)).collect();
        Ok(output::table(&["NAME", "ID", ">SIZE", "PROCESSOR", ">CONTEXT", "UNTIL"], &rows)?)
    }
}

fn row(model: &Value, now: u64) -> Vec<String> {
    let text = |key: &str| model[key].as_str().unwrap_or_default().to_string();
    let size = model["size"].as_u64().unwrap_or(0);
    let context = model["context_length"].as_u64().map_or_else(String::new, |n| n.to_string());
    let id = text("digest").chars().take(12).collect();
    vec![text("name"), id, bytes(size), processor(model, size), context, until(&text("expires_at"), now)]
}

/// The devices, or of a server that has no list of them the share that is in a card's memory.
fn processor(model: &Value, size: u64) -> String {
    if let Some(devices) = model["devices"].as_array() {
        return devices.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    }
    let percent = model["size_vram"].as_u64().unwrap_or(0).saturating_mul(100).checked_div(size).unwrap_or(0);
    match percent {
        0 => "100% CPU".into(),
        100.. => "100% GPU".into(),
        gpu => format!("{}%/{gpu}% CPU/GPU", 100 - gpu),
    }
}

/// When a time is, from `now` on.
fn until(text: &str, now: u64) -> String {
    const YEAR: u64 = 365 * 24 * 3600;
    let Some(at) = clock::read(text) else { return text.into() };
    let n = match at.saturating_sub(now) {
        0 => return "when it has no request".into(),
        n if n > 10 * YEAR => return "forever".into(),
        n if n < 60 => output::n_things(n as usize, "second"),
        n if n < 3600 => output::n_things((n / 60) as usize, "minute"),
        n if n < 48 * 3600 => output::n_things((n / 3600) as usize, "hour"),
        n => output::n_things((n / 86_400) as usize, "day"),
    };
    format!("{n} from now")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_from_now_on() {
        let now = clock::read("2026-01-31T23:00:00Z").unwrap();
        for (text, expected) in [
            ("2026-01-31T23:00:59Z", "59 seconds from now"),
            ("2026-01-31T23:04:59.5Z", "4 minutes from now"),
            ("2026-02-01T02:30:00+01:00", "2 hours from now"),
            ("2026-02-03T00:00:00Z", "2 days from now"),
            ("2126-02-03T00:00:00Z", "forever"),
            ("2026-01-31T22:59:00Z", "when it has no request"),
            ("soon", "soon"),
        ] {
            assert_eq!(until(text, now), expected);
        }
    }

    #[test]
    fn the_processor_is_the_devices_or_a_share() {
        let of = |model: Value| processor(&model, 200);
        assert_eq!(of(json!({ "devices": ["cuda:0", "cpu"], "size_vram": 0 })), "cuda:0, cpu");
        assert_eq!(of(json!({ "size_vram": 0 })), "100% CPU");
        assert_eq!(of(json!({ "size_vram": 200 })), "100% GPU");
        assert_eq!(of(json!({ "size_vram": 50 })), "75%/25% CPU/GPU");
    }
}
