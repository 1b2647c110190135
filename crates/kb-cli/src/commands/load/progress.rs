//! The progress bar of a load: files, bytes, rate and time left, on standard error.

use super::tally::{grouped, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    files: u64,
    done: AtomicU64,
}

impl Progress {
    /// The progress of sending files of so many bytes in all. Nothing is drawn unless `is_drawn`.
    pub fn new(files: u64, bytes: u64, is_drawn: bool) -> Progress {
        let target = match is_drawn {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(bytes), target);
        let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}  {sent}  {rate}  {left}");
        if let Ok(style) = style {
            bar.set_style(
                style
                    .progress_chars("█▉▊▋▌▍▎▏ ")
                    .with_key("sent", |state: &ProgressState, out: &mut dyn Write| {
                        let _ = write!(out, "{} of {}", size(state.pos()), size(state.len().unwrap_or(0)));
                    })
                    .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                        let _ = write!(out, "{}/s", size(state.per_sec() as u64));
                    })
                    .with_key("left", |state: &ProgressState, out: &mut dyn Write| {
                        let _ = write!(out, "{} left", clock(state.eta()));
                    }),
            );
        }
        let progress = Progress { bar, files, done: AtomicU64::new(0) };
        progress.say(0);
        progress
    }

    fn say(&self, done: u64) {
        self.bar.set_message(format!("{} of {} files", grouped(done), grouped(self.files)));
    }

    /// A file of so many bytes is done with.
    pub fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.inc(bytes);
        if !self.bar.is_hidden() {
            self.say(done);
        }
    }

    /// Writes a line above the bar.
    pub fn note(&self, note: &str) {
        let note = crate::output::clean::clean(note);
        self.bar.suspend(|| {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("kb: {note}\n").as_bytes());
        });
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Minutes and seconds, and hours if there are any.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_read_as_a_clock() {
        let shown = [5, 65, 3_665].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(shown.each_ref().map(String::as_str), ["0:05", "1:05", "1:01:05"]);
    }
}
