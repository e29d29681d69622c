//! How long a model stays loaded, as Ollama writes it: seconds, or a text such as `5m` or `1h30m`; negative is for ever.

use serde_json::Value;
use std::time::Duration;

/// A time that may be for ever, which is `None`.
pub type KeepAlive = Option<Duration>;

/// What is as long as for ever: 100 years. Longer times could not be added to the date.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Reads a text: `300`, `30s`, `5m`, `1h30m`, `500ms`, `-1`.
pub fn parse_keep_alive(text: &str) -> Result<KeepAlive, String> {
    let expected =
        || format!("`{text}`: expected seconds, or a time such as 30s, 5m or 1h30m; -1 is for ever");
    let trimmed = text.trim();
    let (is_negative, mut rest) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed),
    };
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(expected());
    }
    while !rest.is_empty() {
        let n_digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..n_digits].parse().map_err(|_| expected())?;
        let after = &rest[n_digits..];
        let n_letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let factor = match &after[..n_letters] {
            "" if after.is_empty() => 1.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(expected()),
        };
        seconds += number * factor;
        rest = &after[n_letters..];
    }
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time < FOR_EVER);
    Ok(if is_negative { None } else { time })
}

/// Reads a field of a request.
pub fn of_json(value: &Value) -> Result<KeepAlive, String> {
    match value {
        Value::String(text) => parse_keep_alive(text),
        Value::Number(seconds) => parse_keep_alive(&seconds.to_string()),
        other => Err(format!("{other}: expected a number of seconds, or a time such as \"5m\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_seconds_or_have_units() {
        let seconds = |text: &str| parse_keep_alive(text).unwrap().map(|time| time.as_secs_f64());
        assert_eq!(seconds("300"), Some(300.0));
        assert_eq!(seconds("1h30m"), Some(5400.0));
        assert_eq!(seconds("1.5m"), Some(90.0));
        assert_eq!(seconds("500ms"), Some(0.5));
        assert_eq!(seconds("0"), Some(0.0));
        assert_eq!(seconds("-1m"), None);
        assert_eq!(seconds("18446744073709549568"), None, "more than a date holds");
        assert_eq!(of_json(&json!(-1)), Ok(None));
        assert_eq!(of_json(&json!(60)), Ok(Some(Duration::from_secs(60))));
        for wrong in ["", "-", "5x", "m", "1.2.3s"] {
            assert!(parse_keep_alive(wrong).is_err(), "{wrong}");
        }
        assert!(of_json(&json!(true)).is_err());
    }
}
