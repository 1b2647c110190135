//! How often something is done whose cost is not bounded, because dead rows that an old snapshot keeps, or
//! locked rows, make it slow. Pure.

use std::time::{Duration, Instant};

/// The length of a pause as a multiple of the time that the work before it took, if that was more than
/// [`SHORT`]. So the work takes a twentieth of the time.
const TIMES: u32 = 20;
const SHORT: Duration = Duration::from_millis(5);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);

/// When it was done last, and how long it took.
#[derive(Debug, Default)]
pub struct Pace(Option<(Instant, Duration)>);

impl Pace {
    /// Whether it may be done now: `every` so often at most.
    pub fn is_due(&self, every: Duration, now: Instant) -> bool {
        self.0.is_none_or(|(ended, took)| {
            let pause = if took > SHORT { (took * TIMES).min(LONGEST) } else { Duration::ZERO };
            now.saturating_duration_since(ended) >= pause.max(every)
        })
    }

    pub fn note(&mut self, begun: Instant, ended: Instant) {
        self.0 = Some((ended, ended.saturating_duration_since(begun)));
    }

    pub fn is_first(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_done_for_a_twentieth_of_the_time_and_never_put_off_for_long() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let ms = Duration::from_millis;
        assert!(pace.is_first() && pace.is_due(ms(100), begun));
        for (took, every, pause) in
            [(1, 0, 0), (1, 100, 100), (10, 0, 200), (10, 250, 250), (100, 250, 2000), (9000, 0, 5000)]
        {
            let ended = begun + ms(took);
            pace.note(begun, ended);
            assert!(pace.is_due(ms(every), ended + ms(pause)), "{took} ms, every {every} ms");
            assert!(
                pause == 0 || !pace.is_due(ms(every), ended + ms(pause - 1)),
                "{took} ms, every {every} ms"
            );
        }
        assert!(!pace.is_first());
    }
}
