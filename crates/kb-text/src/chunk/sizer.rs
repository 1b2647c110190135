//! Sizes any part of a window of text without tokenising it again.

use crate::chunking::Unit;
use crate::tokenizer::{Tokenizer, disjoint, is_beside_space};
use kb_types::Bounds;
use kb_types::error::{Error, Result};
use std::cell::Cell;
use std::ops::Range;
use text_splitter::TryChunkSizer;

/// Knows where the tokens of one window of text are. A part's size is the number of tokens it
/// touches: as many as it has alone, or a few off where it is cut inside a word.
pub struct WindowSizer<'a> {
    window: &'a str,
    tokenizer: &'a Tokenizer,
    pub bounds: &'a Bounds,
    /// None: characters are counted.
    tokens: Option<Vec<Range<usize>>>,
    /// Tokens are the same in a part between white space.
    by_words: bool,
    /// Sizes that may still be asked for until the splitter makes a chunk; None: any number.
    left: Cell<Option<usize>>,
}

/// Sizes that the splitter may ask for to make a chunk. Some dozens are usual.
const ASKED: usize = 2000;

/// A part counts as a token at least for so many bytes. Otherwise text that a tokeniser drops, or takes for one unknown
/// word, would have no size, and the splitter would go through all of it again and again for one chunk.
pub const LONGEST_TOKEN: usize = 64;
/// Work counted for looking up a part's tokens, in bytes.
const LOOKUP: usize = 4;

impl<'a> WindowSizer<'a> {
    pub fn new(window: &'a str, unit: Unit, tokenizer: &'a Tokenizer, bounds: &'a Bounds) -> Result<Self> {
        let (tokens, by_words) = match unit {
            Unit::Tokens => {
                let (tokens, by_words) = tokenizer.located(window, bounds)?;
                (Some(tokens), by_words)
            }
            Unit::Characters => (None, false),
        };
        Ok(WindowSizer { window, tokenizer, bounds, tokens, by_words, left: Cell::new(None) })
    }

    /// Notes that the splitter made a chunk: it may ask for the sizes of one more.
    pub fn made_chunk(&self) {
        self.left.set(Some(ASKED));
    }

    /// Whether the splitter asked for more sizes than a chunk takes, and so got an error. With overlap it goes back over
    /// parts of a chunk and tries again from each of them. Each try goes through all that is left of the window, and
    /// gives no chunk until one reaches further.
    pub fn is_stalled(&self) -> bool {
        self.left.get() == Some(0)
    }

    /// Where each unit begins, the first at 0: tokens that share a character count as one, longer ones as several.
    pub fn starts(&self) -> Vec<usize> {
        let Some(tokens) = &self.tokens else {
            return self.window.char_indices().map(|(i, _)| i).collect();
        };
        let mut starts = vec![0];
        let mut last = 0;
        let spans = disjoint(tokens);
        for start in spans.iter().skip(1).map(|token| token.start).chain([self.window.len()]) {
            // A gap between words is no unit, however long.
            let filled = last + self.window[last..start].trim_end().len();
            while filled > last + LONGEST_TOKEN {
                last = self.window.floor_char_boundary(last + LONGEST_TOKEN);
                starts.push(last);
            }
            last = start;
            starts.push(start);
        }
        // The end of the window is no start.
        starts.pop();
        starts
    }

    /// How many tokens a part has by itself.
    pub fn count(&self, part: &str) -> Result<usize> {
        self.tokenizer.count(part, self.bounds)
    }

    /// How many tokens a range of the window has by itself, where that can be told without tokenising it again.
    pub fn known_count(&self, part: &Range<usize>) -> Option<usize> {
        let tokens = self.tokens.as_ref().filter(|_| self.by_words)?;
        let before = |at: usize| tokens.partition_point(|token| token.start < at);
        let is_clean = |at: usize| {
            let last = before(at).checked_sub(1).map(|last| &tokens[last]);
            is_beside_space(self.window, at) && last.is_none_or(|token| token.end <= at)
        };
        (is_clean(part.start) && is_clean(part.end)).then(|| before(part.end) - before(part.start))
    }

    /// A part's size in the window.
    pub fn size(&self, part: &str) -> Result<usize> {
        let Some(tokens) = &self.tokens else {
            self.bounds.spend(LOOKUP + part.len() / 16)?;
            return Ok(part.chars().count());
        };
        self.bounds.spend(LOOKUP)?;
        // The splitter only asks about slices of the window. If it ever asks about a copy, the
        // address shows it, and the copy is tokenised.
        let start = (part.as_ptr() as usize).wrapping_sub(self.window.as_ptr() as usize);
        let Some(end) = start.checked_add(part.len()).filter(|end| *end <= self.window.len()) else {
            return self.count(part);
        };
        let first = tokens.partition_point(|t| t.start < start);
        let last = tokens.partition_point(|t| t.start < end);
        // A token that the part begins or ends inside leaves at least one token in the part.
        let cut_at_start = first > 0 && tokens[first - 1].end > start;
        let tokens = last - first + usize::from(cut_at_start && end > start);
        Ok(tokens.max(part.len() / LONGEST_TOKEN))
    }
}

impl TryChunkSizer for &WindowSizer<'_> {
    type Error = Error;

    fn try_size(&self, part: &str) -> Result<usize> {
        // Between two sizes the splitter may go through all that is left.
        self.bounds.spend(self.window.len() / 4096)?;
        match self.left.get() {
            Some(0) => return Err(Error::Internal("the splitter makes no progress".into())),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.size(part)
    }
}

/// Counts each part as the model will read it, reporting the work.
#[derive(Clone, Copy)]
pub struct Counter<'a>(pub &'a Tokenizer, pub &'a Bounds);

impl TryChunkSizer for Counter<'_> {
    type Error = Error;

    fn try_size(&self, part: &str) -> Result<usize> {
        self.0.count(part, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cut_between_words_have_their_own_count() {
        let text = "One two, three (four).  Five\n\nsix é seven";
        for tokenizer in [Tokenizer::words(), Tokenizer::tiktoken("cl100k_base").unwrap()] {
            let bounds = Bounds::none();
            let sizer = WindowSizer::new(text, Unit::Tokens, &tokenizer, &bounds).unwrap();
            for start in ["One", "two", "(four", "six"] {
                for end in ["seven", "Five", "three"] {
                    let (s, e) = (text.find(start).unwrap(), text.find(end).unwrap() + end.len());
                    if s < e {
                        let part = &text[s..e];
                        assert_eq!(sizer.size(part), tokenizer.count(part, &bounds), "{part:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_count_is_known_between_white_space_where_words_do_not_matter_to_one_another() {
        let text = "One two, three (four).  Five";
        let bounds = Bounds::none();
        let words = Tokenizer::words();
        let sizer = WindowSizer::new(text, Unit::Tokens, &words, &bounds).unwrap();
        assert_eq!(sizer.known_count(&(4..14)), Some(3));
        assert_eq!(sizer.known_count(&(0..text.len())), Some(9));
        // Inside a word, and between words without white space.
        assert_eq!((sizer.known_count(&(5..14)), sizer.known_count(&(4..7))), (None, None));
        let tiktoken = Tokenizer::tiktoken("cl100k_base").unwrap();
        let others = [
            WindowSizer::new(text, Unit::Tokens, &tiktoken, &bounds),
            WindowSizer::new(text, Unit::Characters, &words, &bounds),
        ];
        assert!(others.into_iter().all(|sizer| sizer.unwrap().known_count(&(4..14)).is_none()));
    }

    #[test]
    fn a_text_outside_the_window_is_tokenised() {
        let tokenizer = Tokenizer::words();
        let bounds = Bounds::none();
        let sizer = WindowSizer::new("a b", Unit::Tokens, &tokenizer, &bounds).unwrap();
        assert_eq!(sizer.size(&"x y z ".repeat(3)), Ok(9));
    }
}
