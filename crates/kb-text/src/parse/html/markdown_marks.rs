//! Finds, in linear time, the characters of a block of text that Markdown would parse as marks (CommonMark
//! 0.31, with tables).

use super::disguise::plain;
use std::collections::HashSet;

/// The kind of block that a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    Heading,
    Row,
    Fence,
}

/// The text of one block without its prefixes. Emphasis, code and links begin and end within it.
pub struct Leaf {
    kind: BlockKind,
    /// Each character, and whether it belongs to the text but has a meaning in Markdown.
    chars: Vec<(char, bool)>,
    /// The last places where `*` and `_` can end an emphasis.
    last_star: usize,
    last_underscore: usize,
    last_greater: usize,
    first_bracket: usize,
    is_definition: bool,
    /// Either all backticks are escaped or none, because a backslash does not escape within code, which two
    /// runs of the same length enclose.
    escapes_backticks: bool,
    /// Whether the text is that of a list item, whose dash would make a thematic break together with two more
    /// dashes.
    is_item: bool,
}

impl Leaf {
    /// `is_quoted`: lines after the first begin with the mark of a quote, which may end what looks like a
    /// tag. `is_item`: the mark of a list item, a dash, precedes the text.
    pub fn new(content: &str, kind: BlockKind, is_quoted: bool, is_item: bool) -> Leaf {
        let chars: Vec<(char, bool)> = content.chars().map(|c| (plain(c), plain(c) != c)).collect();
        let mut leaf = Leaf {
            kind,
            last_star: 0,
            last_underscore: 0,
            last_greater: if is_quoted { usize::MAX } else { 0 },
            first_bracket: usize::MAX,
            is_definition: false,
            escapes_backticks: false,
            is_item,
            chars,
        };
        let (mut at, mut runs) = (0, HashSet::new());
        while at < leaf.chars.len() {
            let c = leaf.special(at);
            let end = if matches!(c, Some('*' | '_' | '`')) { leaf.run_end(at) } else { at + 1 };
            match c {
                Some('*') if leaf.can_close(at, end) => leaf.last_star = at,
                Some('_') if leaf.can_close(at, end) => leaf.last_underscore = at,
                Some('>') => leaf.last_greater = leaf.last_greater.max(at),
                Some('[') => leaf.first_bracket = leaf.first_bracket.min(at),
                Some(']') => leaf.is_definition |= leaf.first_bracket == 0 && leaf.char(end) == Some(':'),
                Some('`') => leaf.escapes_backticks |= end - at > 2 || !runs.insert(end - at),
                _ => {}
            }
            at = end;
        }
        leaf
    }

    /// The text with the escapes that it needs.
    pub fn escaped(&self) -> String {
        let mut out = String::with_capacity(self.chars.len());
        if self.kind == BlockKind::Fence {
            out.extend(self.chars.iter().map(|(c, _)| c));
            return out;
        }
        let mut at = 0;
        // The place in this line where a backslash prevents the line from being parsed as another block.
        let mut forced = self.forced(0);
        while at < self.chars.len() {
            let run =
                if matches!(self.special(at), Some('*' | '_' | '`')) { self.run_end(at) } else { at + 1 };
            let escapes = self.needs_escape(at, run);
            for i in at..run {
                if escapes || forced == Some(i) {
                    out.push('\\');
                }
                out.extend(self.char(i));
            }
            at = run;
            if self.char(at - 1) == Some('\n') {
                forced = self.forced(at);
            }
        }
        out
    }

    fn char(&self, at: usize) -> Option<char> {
        self.chars.get(at).map(|(c, _)| *c)
    }

    /// The character, if it belongs to the text but has a meaning in Markdown.
    fn special(&self, at: usize) -> Option<char> {
        self.chars.get(at).filter(|(_, is_special)| *is_special).map(|(c, _)| *c)
    }

    fn run_end(&self, at: usize) -> usize {
        let same = self.chars[at..].iter().take_while(|next| **next == self.chars[at]);
        at + same.count()
    }

    fn rest(&self, from: usize) -> impl Iterator<Item = char> + Clone + '_ {
        self.chars[from.min(self.chars.len())..].iter().map(|(c, _)| *c)
    }

    /// Whether the run could begin an emphasis, that is, whether it is left-flanking. Characters that may or
    /// may not be punctuation count as whatever makes that more likely.
    fn can_open(&self, at: usize, end: usize) -> bool {
        self.flanks(self.before(at), self.char(end), self.special(at))
    }

    fn can_close(&self, at: usize, end: usize) -> bool {
        self.flanks(self.char(end), self.before(at), self.special(at))
    }

    fn before(&self, at: usize) -> Option<char> {
        at.checked_sub(1).and_then(|at| self.char(at))
    }

    fn flanks(&self, outer: Option<char>, inner: Option<char>, run: Option<char>) -> bool {
        let is_space =
            |c: char| c.is_whitespace() && !matches!(c, '\u{b}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let follows_word = outer.is_some_and(char::is_alphanumeric);
        let is_mark = inner.is_some_and(|c| c.is_ascii_punctuation());
        inner.is_some_and(|c| !is_space(c)) && !(follows_word && (is_mark || run == Some('_')))
    }

    /// Whether a run of characters would be parsed as a mark within a text.
    fn needs_escape(&self, at: usize, end: usize) -> bool {
        let Some(c) = self.special(at) else { return false };
        match c {
            '*' => at < self.last_star && self.can_open(at, end),
            '_' => at < self.last_underscore && self.can_open(at, end),
            '`' => self.escapes_backticks,
            '\\' => self.char(end).is_some_and(|next| next.is_ascii_punctuation() || next == '\n'),
            ']' => self.first_bracket < at && self.char(end) == Some('('),
            '<' => at < self.last_greater && (self.begins_tag(at) || self.begins_address(at)),
            '&' => self.begins_entity(at),
            '|' => self.kind == BlockKind::Row,
            _ => false,
        }
    }

    /// Whether a `<` may begin a tag, a comment or a declaration.
    fn begins_tag(&self, at: usize) -> bool {
        let from = at + 1 + usize::from(self.char(at + 1) == Some('/'));
        let after_name = || self.rest(from).find(|c| !(c.is_ascii_alphanumeric() || *c == '-'));
        match self.char(from) {
            Some('!' | '?') => true,
            Some(c) if c.is_ascii_alphabetic() => {
                after_name().is_none_or(|c| matches!(c, '/' | '>') || c.is_whitespace())
            }
            _ => false,
        }
    }

    /// Whether a `<` may begin an address that would be parsed as a link.
    fn begins_address(&self, at: usize) -> bool {
        let ends = |c: &char| c.is_whitespace() || matches!(c, '<' | '>');
        self.rest(at + 1).take_while(|c| !ends(c)).any(|c| matches!(c, ':' | '@'))
    }

    fn begins_entity(&self, at: usize) -> bool {
        let is_number = self.char(at + 1) == Some('#');
        let mut rest = self.rest(at + 1 + usize::from(is_number)).take(LONGEST_ENTITY);
        let mut length = 0;
        rest.find(|c| {
            length += 1;
            !c.is_ascii_alphanumeric()
        }) == Some(';')
            && length > 1
    }

    /// The place in the line beginning at `start` where an escape prevents the line from being parsed as
    /// another block.
    fn forced(&self, start: usize) -> Option<usize> {
        let length = self.rest(start).take_while(|c| *c != '\n').count();
        let line = &self.chars[start..start + length];
        let only = |set: &[char]| line.iter().all(|(c, _)| set.contains(c));
        let first_special = |set: &[char]| {
            let at = line.iter().position(|(c, is_special)| *is_special && set.contains(c));
            at.map(|at| start + at)
        };
        let continues = start > 0;
        let is_delimiter_row = only(&['|', '-', ':', ' ']) && line.iter().any(|(c, _)| *c == '-');
        match self.kind {
            // A run of # at the end of a heading would be dropped.
            BlockKind::Heading => {
                let words = line.len() - line.iter().rev().take_while(|(c, _)| *c == '#').count();
                let stands_alone = words == 0 || line[words - 1].0 == ' ';
                return (words < line.len() && stands_alone).then_some(words);
            }
            BlockKind::Row => {
                return (continues && is_delimiter_row).then(|| first_special(&['-'])).flatten();
            }
            BlockKind::Fence => return None,
            BlockKind::Text => {}
        }
        let run = self.chars.get(start).map_or(0, |_| self.run_end(start) - start);
        let ends_mark = |at: usize| matches!(line.get(at), None | Some((' ' | '\t', _)));
        let c = self.char(start)?;
        let digits = line.iter().take_while(|(c, _)| c.is_ascii_digit()).count();
        let is_block = match c {
            '#' => run <= 6 && ends_mark(run),
            '>' => true,
            '-' | '+' | '*' if ends_mark(1) => true,
            '-' | '*' | '_'
                if only(&[c, ' ']) && line.iter().filter(|(other, _)| *other == c).count() > 2 =>
            {
                true
            }
            '-' if !continues && self.is_item && only(&['-', ' ']) => true,
            '-' | '=' if continues && run == line.len() => true,
            '~' => run > 2,
            '<' => self.begins_tag(start),
            '[' => start == 0 && self.is_definition,
            '|' | '-' | ':' => continues && is_delimiter_row,
            _ => false,
        };
        if is_block {
            return Some(start);
        }
        let is_number = (1..=9).contains(&digits)
            && matches!(line.get(digits), Some(('.' | ')', _)))
            && ends_mark(digits + 1);
        is_number.then_some(start + digits)
    }
}

const LONGEST_ENTITY: usize = 33;
