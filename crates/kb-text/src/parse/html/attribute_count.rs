//! Counts the attributes of a tag that is not complete yet.
//!
//! The parser compares each attribute with all before it in the tag, and reports the tag only when it is
//! complete.

/// Reads the text of a tag after its '<' like the tokeniser of the HTML standard (13.2.5.6 to 13.2.5.40).
#[derive(Debug, Default)]
pub struct Attributes {
    state: State,
    pub count: usize,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Start,
    EndTag,
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    /// Within a value that this quote ends.
    Quoted(u8),
    Unquoted,
    /// In a comment or similar, or after the tag.
    NoTag,
}

impl Attributes {
    /// Reads the next part of the text.
    pub fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            self.state = self.next(byte);
        }
    }

    fn next(&mut self, byte: u8) -> State {
        let space = byte.is_ascii_whitespace();
        match self.state {
            State::Start if byte == b'/' => State::EndTag,
            State::Start | State::EndTag if byte.is_ascii_alphabetic() => State::TagName,
            State::Start | State::EndTag | State::NoTag => State::NoTag,
            State::Quoted(quote) if byte == quote => State::BeforeName,
            State::Quoted(quote) => State::Quoted(quote),
            State::BeforeValue if space => State::BeforeValue,
            State::BeforeValue if matches!(byte, b'"' | b'\'') => State::Quoted(byte),
            _ if byte == b'>' => State::NoTag,
            State::BeforeValue => State::Unquoted,
            State::Unquoted if space => State::BeforeName,
            State::Unquoted => State::Unquoted,
            State::Name | State::AfterName if byte == b'=' => State::BeforeValue,
            State::Name if space => State::AfterName,
            State::AfterName if space => State::AfterName,
            State::TagName if !space && byte != b'/' => State::TagName,
            State::TagName | State::BeforeName if space => State::BeforeName,
            State::TagName | State::BeforeName | State::Name | State::AfterName if byte == b'/' => {
                State::BeforeName
            }
            State::Name => State::Name,
            State::TagName | State::BeforeName | State::AfterName => {
                self.count += 1;
                State::Name
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_counted_as_the_parser_reads_them() {
        for (text, count) in [
            ("p a b=1 c='x y' d=\"e f > g\" h", 5),
            ("/p a b", 2),
            ("p/a/b//c", 3),
            ("p a = b c= 'd'e", 3),
            ("p ='x y'", 2),
            ("p a b>c d e", 2),
            ("!-- a b c", 0),
            ("!doctype html public", 0),
            ("?xml a b", 0),
            ("/ a b", 0),
            (" a b", 0),
            ("p title='a b c d e", 1),
        ] {
            let mut attributes = Attributes::default();
            attributes.read(text);
            assert_eq!(attributes.count, count, "{text}");
        }
    }
}
