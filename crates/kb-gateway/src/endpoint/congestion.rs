//! Congestion control, as in TCP: how many requests may be in flight at an endpoint that throttles.
//!
//! After a refusal one request is in flight until it passes. Then the number doubles each round up to half of
//! what was in flight at the refusal (slow start), and then grows by one each round (additive increase).
//! Jacobson, "Congestion Avoidance and Control", 1988; RFC 5681, 3.1. Without a refusal the configured limit
//! applies from the beginning.

#[derive(Debug)]
pub struct Window {
    /// The configured limit.
    most: f64,
    size: f64,
    /// Above this threshold the window grows by one each round.
    threshold: f64,
    /// The number of reductions.
    round: u64,
    /// The number of reductions since the last request that passed.
    refusals: u32,
}

impl Window {
    pub fn new(most: usize) -> Window {
        let most = most.max(1) as f64;
        Window { most, size: most, threshold: most, round: 0, refusals: 0 }
    }

    /// How many requests may be in flight, at least one.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The current round, for a request that is sent now.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// How many consecutive refusals there were.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// Records that a request of this round was answered. A request from before the last reduction says
    /// nothing about the current load.
    pub fn pass(&mut self, round: u64) {
        if round == self.round {
            self.refusals = 0;
            let more = if self.size < self.threshold { 1.0 } else { 1.0 / self.size };
            self.size = (self.size + more).min(self.most);
        }
    }

    /// Records that a request of this round was throttled. Requests that were in flight together count once.
    pub fn refuse(&mut self, round: u64) {
        if round == self.round {
            if self.refusals == 0 {
                self.threshold = (self.size / 2.0).max(1.0);
            }
            self.size = 1.0;
            self.round += 1;
            self.refusals += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the window after each request that passes.
    fn sizes(window: &mut Window, count: usize) -> Vec<usize> {
        let next = |_| {
            window.pass(window.round());
            window.size()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn after_a_refusal_the_window_grows_fast_to_half_and_then_slowly() {
        let mut window = Window::new(8);
        assert_eq!(sizes(&mut window, 3), [8, 8, 8]);
        window.refuse(0);
        assert_eq!(window.size(), 1);
        assert_eq!(sizes(&mut window, 3), [2, 3, 4]);
        // About one more for each round of as many requests as are in flight.
        let slow = sizes(&mut window, 40);
        assert_eq!((slow[3], slow[4]), (4, 5));
        assert_eq!((slow[22], slow[39]), (7, 8));
    }

    #[test]
    fn requests_in_flight_together_are_counted_as_one_refusal() {
        let mut window = Window::new(8);
        let round = window.round();
        for _ in 0..8 {
            window.refuse(round);
            window.pass(round);
        }
        assert_eq!((window.size(), window.refusals()), (1, 1));
        // After another refusal it returns to half of what it was.
        for _ in 0..5 {
            window.refuse(window.round());
        }
        assert_eq!((window.size(), window.refusals()), (1, 6));
        assert_eq!(sizes(&mut window, 3), [2, 3, 4]);
        assert_eq!(window.refusals(), 0);
    }

    #[test]
    fn the_window_never_shrinks_below_one() {
        let mut window = Window::new(1);
        window.refuse(window.round());
        assert_eq!(sizes(&mut window, 4), [1, 1, 1, 1]);
    }
}
