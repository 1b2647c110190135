//! Tells the size of any part of a window of text without tokenising it again.

use crate::chunk_settings::Unit;
use crate::tokenizer::{Tokenizer, disjoint, is_beside_space};
use kb_types::Bounds;
use kb_types::error::{Error, Result};
use std::cell::Cell;
use std::ops::Range;
use text_splitter::TryChunkSizer;

/// Knows the positions of the tokens in a window of text. The size of a part is the number of tokens that it
/// touches. That is the number it has by itself, except for small differences where it begins or ends inside
/// a word.
pub struct WindowSizer<'a> {
    window: &'a str,
    tokenizer: &'a Tokenizer,
    pub bounds: &'a Bounds,
    /// None where characters are counted.
    tokens: Option<Vec<Range<usize>>>,
    /// Whether a part between white space has the same tokens by itself.
    by_words: bool,
    /// How many more sizes the splitter may ask for before it makes a chunk. None means any number.
    left: Cell<Option<usize>>,
}

/// How many sizes the splitter may ask for to make a chunk. It usually asks for some dozens.
const ASKED: usize = 2000;

/// A part counts as at least one token for every this many bytes. Otherwise text that a tokeniser drops, or
/// reads as one unknown word, would have no size, and the splitter would scan all of it repeatedly for one
/// chunk.
pub const LONGEST_TOKEN: usize = 64;
/// The work counted for looking up the tokens of a part, in bytes.
const LOOKUP: usize = 4;

impl<'a> WindowSizer<'a> {
    pub fn new(window: &'a str, unit: Unit, tokenizer: &'a Tokenizer, bounds: &'a Bounds) -> Result<Self> {
        let (tokens, by_words) = match unit {
            Unit::Tokens => {
                let (tokens, by_words) = tokenizer.located(window, bounds)?;
                (Some(tokens), by_words)
            }
            Unit::Characters | Unit::Rows => (None, false),
        };
        Ok(WindowSizer { window, tokenizer, bounds, tokens, by_words, left: Cell::new(None) })
    }

    /// Notes that the splitter has made a chunk, so that it may ask for the sizes of the next one.
    pub fn made_chunk(&self) {
        self.left.set(Some(ASKED));
    }

    /// Whether the splitter asked for more sizes than a chunk takes, and therefore got an error. With overlap
    /// it steps back over parts of a chunk and tries again from each of them. Each try scans the rest of the
    /// window, and none gives a chunk until one reaches further.
    pub fn is_stalled(&self) -> bool {
        self.left.get() == Some(0)
    }

    /// The offsets at which units begin, the first at 0. Tokens that share a character count as one unit, and
    /// long tokens as several.
    pub fn starts(&self) -> Vec<usize> {
        let Some(tokens) = &self.tokens else {
            return self.window.char_indices().map(|(i, _)| i).collect();
        };
        let mut starts = vec![0];
        let mut last = 0;
        let spans = disjoint(tokens);
        for start in spans.iter().skip(1).map(|token| token.start).chain([self.window.len()]) {
            // A gap between words is not a unit, however long it is.
            let filled = last + self.window[last..start].trim_end().len();
            while filled > last + LONGEST_TOKEN {
                last = self.window.floor_char_boundary(last + LONGEST_TOKEN);
                starts.push(last);
            }
            last = start;
            starts.push(start);
        }
        // No unit begins at the end of the window.
        starts.pop();
        starts
    }

    /// How many tokens a part has by itself.
    pub fn count(&self, part: &str) -> Result<usize> {
        self.tokenizer.count(part, self.bounds)
    }

    /// The number of tokens that a range of the window has by itself, where that is known without tokenising
    /// it again.
    pub fn known_count(&self, part: &Range<usize>) -> Option<usize> {
        let tokens = self.tokens.as_ref().filter(|_| self.by_words)?;
        let before = |at: usize| tokens.partition_point(|token| token.start < at);
        let is_clean = |at: usize| {
            let last = before(at).checked_sub(1).map(|last| &tokens[last]);
            is_beside_space(self.window, at) && last.is_none_or(|token| token.end <= at)
        };
        (is_clean(part.start) && is_clean(part.end)).then(|| before(part.end) - before(part.start))
    }

    /// The size of a part of the window.
    pub fn size(&self, part: &str) -> Result<usize> {
        let Some(tokens) = &self.tokens else {
            self.bounds.spend(LOOKUP + part.len() / 16)?;
            return Ok(part.chars().count());
        };
        self.bounds.spend(LOOKUP)?;
        // The splitter only asks for slices of the window. If it ever asks for a copy, the address shows
        // that, and the copy is tokenised.
        let start = (part.as_ptr() as usize).wrapping_sub(self.window.as_ptr() as usize);
        let Some(end) = start.checked_add(part.len()).filter(|end| *end <= self.window.len()) else {
            return self.count(part);
        };
        let first = tokens.partition_point(|t| t.start < start);
        let last = tokens.partition_point(|t| t.start < end);
        // Where the part begins or ends inside a token, it has at least one token of it.
        let cut_at_start = first > 0 && tokens[first - 1].end > start;
        let tokens = last - first + usize::from(cut_at_start && end > start);
        Ok(tokens.max(part.len() / LONGEST_TOKEN))
    }
}

impl TryChunkSizer for &WindowSizer<'_> {
    type Error = Error;

    fn try_size(&self, part: &str) -> Result<usize> {
        // Between two sizes the splitter may scan the rest of the window.
        self.bounds.spend(self.window.len() / 4096)?;
        match self.left.get() {
            Some(0) => return Err(Error::Internal("the splitter makes no progress".into())),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.size(part)
    }
}

/// Counts the tokens of each part as the model will read it, and reports the work.
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
    fn a_count_between_white_space_is_known_where_words_are_tokenised_apart() {
        let text = "One two, three (four).  Five";
        let bounds = Bounds::none();
        let words = Tokenizer::words();
        let sizer = WindowSizer::new(text, Unit::Tokens, &words, &bounds).unwrap();
        assert_eq!(sizer.known_count(&(4..14)), Some(3));
        assert_eq!(sizer.known_count(&(0..text.len())), Some(9));
        // The ranges begin or end inside a word, or between words without white space.
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
