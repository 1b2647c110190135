//! When a source runs next by a cron expression, whose times are in UTC: so no change to or from summer time
//! leaves a run out or does it twice. Pure.

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds, Year};

/// The next time of a cron expression, in seconds since 1970. None: the text is none, or it has no such time.
pub fn next(every: &str) -> Option<i64> {
    after(every, Utc::now())
}

fn after(every: &str, now: DateTime<Utc>) -> Option<i64> {
    // Without years, what has a next time always has another one.
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(every).ok()?;
    Some(cron.find_next_occurrence(&now, false).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_expression_has_a_next_time_in_utc_and_an_interval_has_none() {
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let next = |every: &str| after(every, time("2026-03-29T00:30:00Z"));
        for (every, at) in [
            // The night in which clocks in Europe are set forward.
            ("0 2 * * *", "2026-03-29T02:00:00Z"),
            ("30 0 * * *", "2026-03-30T00:30:00Z"),
            ("*/5 * * * * *", "2026-03-29T00:30:05Z"),
            ("0 9 * * MON-FRI", "2026-03-30T09:00:00Z"),
            ("@daily", "2026-03-30T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(next(every), Some(time(at).timestamp()), "{every}");
        }
        for other in [
            "1 day",
            "1 day 2 hours 3 minutes",
            "01:00:00",
            "",
            "* * *",
            "61 * * * *",
            "0 0 0 1 1 * 2027",
            "0 0 30 2 *",
        ] {
            assert_eq!(next(other), None, "{other}");
        }
    }
}
