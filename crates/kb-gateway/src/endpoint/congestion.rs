//! How many requests may be in flight at an endpoint that refuses some for now: congestion control as TCP's.
//!
//! After a refusal one request is in flight until it passes; then twice as many each round up to half of what
//! was in flight at the refusal (slow start), then one more each round (additive increase). Jacobson,
//! "Congestion Avoidance and Control", 1988; RFC 5681, 3.1. Where nothing was refused the limit is the
//! configured one from the beginning.

#[derive(Debug)]
pub struct Window {
    /// What the configuration allows.
    most: f64,
    size: f64,
    /// Above it the window grows slowly.
    threshold: f64,
    /// Counts the reductions.
    round: u64,
    /// Reductions since the last request that passed.
    refusals: u32,
}

impl Window {
    pub fn new(most: usize) -> Window {
        let most = most.max(1) as f64;
        Window { most, size: most, threshold: most, round: 0, refusals: 0 }
    }

    /// Requests that may be in flight, at least one.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The round of a request that is sent now.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// How often in a row the endpoint refused a request for now.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// A request of this round was answered. One that was sent before the last reduction says nothing of the
    /// load now.
    pub fn pass(&mut self, round: u64) {
        if round == self.round {
            self.refusals = 0;
            let more = if self.size < self.threshold { 1.0 } else { 1.0 / self.size };
            self.size = (self.size + more).min(self.most);
        }
    }

    /// A request of this round was refused for now. Those that were in flight with it count once.
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

    /// The window's size after each request that passes.
    fn sizes(window: &mut Window, count: usize) -> Vec<usize> {
        let next = |_| {
            window.pass(window.round());
            window.size()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn after_a_refusal_one_is_in_flight_then_quickly_half_and_slowly_all() {
        let mut window = Window::new(8);
        assert_eq!(sizes(&mut window, 3), [8, 8, 8]);
        window.refuse(0);
        assert_eq!(window.size(), 1);
        assert_eq!(sizes(&mut window, 3), [2, 3, 4]);
        // One more for each round of as many requests as are in flight, about.
        let slow = sizes(&mut window, 40);
        assert_eq!((slow[3], slow[4]), (4, 5));
        assert_eq!((slow[22], slow[39]), (7, 8));
    }

    #[test]
    fn what_was_in_flight_with_a_refused_request_counts_once() {
        let mut window = Window::new(8);
        let round = window.round();
        for _ in 0..8 {
            window.refuse(round);
            window.pass(round);
        }
        assert_eq!((window.size(), window.refusals()), (1, 1));
        // Refused again, it comes back to half of what it was.
        for _ in 0..5 {
            window.refuse(window.round());
        }
        assert_eq!((window.size(), window.refusals()), (1, 6));
        assert_eq!(sizes(&mut window, 3), [2, 3, 4]);
        assert_eq!(window.refusals(), 0);
    }

    #[test]
    fn one_at_a_time_is_never_less() {
        let mut window = Window::new(1);
        window.refuse(window.round());
        assert_eq!(sizes(&mut window, 4), [1, 1, 1, 1]);
    }
}
