//! The time of day, for chat templates that contain the date, and for seeds.

use std::time::{SystemTime, UNIX_EPOCH};

/// UTC as `YYYY-MM-DDTHH:MM:SS`.
pub fn now() -> String {
    date(SystemTime::now())
}

/// A time as UTC in the same form.
pub fn date(time: SystemTime) -> String {
    written(since_1970(time))
}

/// Seconds since 1970, now.
pub fn seconds() -> u64 {
    since_1970(SystemTime::now())
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
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

/// Seconds since 1970 of `YYYY-MM-DDTHH:MM:SS`, whose fraction of a second is dropped, then `Z` or an offset such as `+02:00`.
pub fn read(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(19)?;
    let number = |from: usize, n: usize| date.get(from..from + n)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign @ ("+" | "-"), zone) => {
            let (hours, minutes) = zone.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if sign == "+" { minutes * 60 } else { -minutes * 60 }
        }
        _ => return None,
    };
    // The inverse of `written`: years begin in March.
    let (year, march_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days =
        era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * march_month + 2) / 5 + day - 1 - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_back() {
        for seconds in [0, 951_782_399, 951_782_400, 1_709_251_200, 4_107_542_399, 4_107_542_400] {
            assert_eq!(read(&(written(seconds) + "Z")), Some(seconds));
        }
        assert_eq!(read("1970-01-01T02:00:00.123456+02:00"), Some(0));
        assert_eq!(["", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00é"].map(read), [None; 4]);
    }

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
