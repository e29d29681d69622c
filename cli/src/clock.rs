//! The time of day, for chat templates that contain the date, and for seeds.

use std::time::{SystemTime, UNIX_EPOCH};

/// UTC as `YYYY-MM-DDTHH:MM:SS`.
pub fn now() -> String {
    date(SystemTime::now())
}

/// A time as UTC in the same form.
pub fn date(time: SystemTime) -> String {
    written(time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// A seed that differs from run to run; never 0.
pub fn seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    // 32 bits are enough, and short enough to be typed again.
    ((nanos ^ nanos >> 32) & 0xffff_ffff).max(1)
}

/// Seconds since 1970 as a date of the Gregorian calendar. Years are counted from March, so that the leap day is
/// their last; 400 years have 146 097 days.
pub fn written(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (4_107_542_399, "2100-02-28T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(written(seconds), date);
        }
    }
}
