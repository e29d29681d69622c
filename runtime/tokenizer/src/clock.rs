//! What chat templates get of the time, which the caller gives: this crate reads no clock.

use minijinja::{Error as TemplateError, ErrorKind, Value};

use crate::error::{Error, Result};

/// The function `strftime_now(format)` at `now`, written `YYYY-MM-DDTHH:MM:SS`, and the dates that llama.cpp defines: `date_string`
/// (Llama 3) and `datetime` (Firefunction).
pub(crate) fn variables(now: &str) -> Result<[(String, Value); 3]> {
    let time = Time::parse(now).ok_or_else(|| Error::BadTime { found: now.to_string() })?;
    let date = |format: &str| Value::from(time.format(format).unwrap_or_default());
    Ok([
        ("date_string".into(), date("%d %b %Y")),
        ("datetime".into(), date("%b %d %Y")),
        ("strftime_now".into(), Value::from_function(move |format: String| time.format(&format))),
    ])
}

#[derive(Clone, Copy)]
struct Time {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Time {
    fn parse(text: &str) -> Option<Self> {
        let shape = |at: usize, b: u8| match at {
            4 | 7 => b == b'-',
            10 => b == b'T',
            13 | 16 => b == b':',
            _ => b.is_ascii_digit(),
        };
        if text.len() != 19 || !text.bytes().enumerate().all(|(at, b)| shape(at, b)) {
            return None;
        }
        let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().ok();
        let time = Self {
            year: number(0..4)?,
            month: number(5..7)?,
            day: number(8..10)?,
            hour: number(11..13)?,
            minute: number(14..16)?,
            second: number(17..19)?,
        };
        let in_range = (1..=12).contains(&time.month) && (1..=31).contains(&time.day);
        (in_range && time.hour < 24 && time.minute < 60 && time.second < 61).then_some(time)
    }

    /// Days since Sunday, by Sakamoto's rule.
    fn weekday(&self) -> usize {
        const SHIFT: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = self.year + 400 - u32::from(self.month < 3); // 400 years are whole weeks
        let days = year + year / 4 - year / 100 + year / 400 + SHIFT[self.month as usize - 1] + self.day;
        days as usize % 7
    }

    fn format(&self, format: &str) -> std::result::Result<String, TemplateError> {
        let mut text = String::new();
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            match c {
                '%' => text.push_str(&self.field(&mut rest)?),
                c => text.push(c),
            }
        }
        Ok(text)
    }

    fn field(&self, rest: &mut std::str::Chars) -> std::result::Result<String, TemplateError> {
        let (month, day) = (MONTHS[self.month as usize - 1], DAYS[self.weekday()]);
        let padded = |n: u32| format!("{n:02}");
        let hour12 = (self.hour + 11) % 12 + 1;
        let letter = rest.next();
        Ok(match letter {
            Some('Y') => format!("{:04}", self.year),
            Some('y') => padded(self.year % 100),
            Some('m') => padded(self.month),
            Some('d') => padded(self.day),
            Some('e') => format!("{:2}", self.day),
            Some('B') => month.to_string(),
            Some('b' | 'h') => month[..3].to_string(),
            Some('A') => day.to_string(),
            Some('a') => day[..3].to_string(),
            Some('H') => padded(self.hour),
            Some('I') => padded(hour12),
            Some('M') => padded(self.minute),
            Some('S') => padded(self.second),
            Some('p') => if self.hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('F') => self.format("%Y-%m-%d")?,
            Some('T') => self.format("%H:%M:%S")?,
            Some('-') => self.field(rest)?.trim_start_matches(['0', ' ']).to_string(),
            Some('%') => "%".to_string(),
            other => {
                let found = other.map(String::from).unwrap_or_default();
                let reason = format!("strftime_now does not support %{found}");
                return Err(TemplateError::new(ErrorKind::InvalidOperation, reason));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    fn check(now: &str, format: &str, expected: &str) {
        let time = Time::parse(now).expect("a good time");
        assert_eq!(time.format(format).map_err(|e| e.to_string()), Ok(expected.to_string()));
    }

    #[test]
    fn dates_are_written_as_python_does() {
        check("2024-07-26T09:05:03", "%d %b %Y", "26 Jul 2024");
        check(
            "2024-07-26T21:05:03",
            "%A, %B %-d, %y; %I:%M:%S %p 100%%",
            "Friday, July 26, 24; 09:05:03 PM 100%",
        );
        check("2000-01-01T00:00:00", "%a %F %T %-I", "Sat 2000-01-01 00:00:00 12");
        check("2026-02-28T00:00:00", "%a", "Sat");
    }

    #[test]
    fn a_time_of_another_shape_is_no_time() {
        for text in ["", "2024-07-26", "2024-13-01T00:00:00", "2024-01-01 00:00:00", "2024-01-01T24:00:00"] {
            assert!(Time::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let time = Time::parse("2024-07-26T09:05:03").expect("a good time");
        assert!(time.format("%Q").is_err_and(|e| e.to_string().contains("%Q")));
        assert!(time.format("%").is_err());
    }
}
