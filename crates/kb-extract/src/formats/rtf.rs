//! Rich Text Format (specification 1.9.1): paragraphs, headings by style, lists, tables and footnotes.
//! Headers and footers, hidden and deleted text, and pictures are left out.
//!
//! The reader is our own. `rtf-parser` 0.4 (MIT) calls itself for every token, takes text that is UTF-8
//! already, so that `\'e9` is read by no code page, and knows neither tables nor styles. No other crate was
//! found.

use super::Format;
use crate::formats::office::blocks::{Blocks, Inline, List, push_cell, push_text};
use crate::formats::office::properties::Properties;
use encoding_rs::{Encoding, MACINTOSH, WINDOWS_1252};
use kb_types::extraction::{Extraction, Fault, File};
use std::collections::HashMap;

pub const RTF: Format = Format {
    content_types: &["application/rtf", "text/rtf", "application/x-rtf", "text/richtext"],
    extensions: &["rtf"],
    is_text: false,
    read,
};

/// The most notes and text boxes of which one is in another.
const MAX_AROUND: usize = 4;
/// The most groups of which one is in another.
const MAX_GROUPS: usize = 10_000;

fn read(file: &File) -> Result<Extraction, Fault> {
    let mut reader = Reader::new(file.max_text);
    let mut lexer = Lexer { rest: &file.bytes };
    while let Some(token) = lexer.next() {
        reader.take(token)?;
        if reader.groups.is_empty() {
            break;
        }
    }
    if !reader.groups.is_empty() {
        return Err(Fault::Broken("a group has no end".into()));
    }
    reader.end_paragraph(true)?;
    reader.end_table()?;
    reader.blocks.into_extraction(reader.properties.title, reader.properties.metadata, reader.has_images)
}

enum Token<'a> {
    Begin,
    End,
    /// A control word and its parameter, or a control symbol.
    Control(&'a str, Option<i32>),
    /// A byte of text, by `\'hh`.
    Byte(u8),
    Text(&'a [u8]),
}

struct Lexer<'a> {
    rest: &'a [u8],
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        while let [b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
        match self.rest {
            [] => None,
            [b'{', rest @ ..] => self.go(rest, Token::Begin),
            [b'}', rest @ ..] => self.go(rest, Token::End),
            [b'\\', b'\'', rest @ ..] => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match byte {
                    Some(byte) => self.go(&rest[2..], Token::Byte(byte)),
                    None => self.go(rest, Token::Text(b"")),
                }
            }
            [b'\\', rest @ ..] => self.control(rest),
            rest => {
                let end = rest.iter().position(|byte| b"{}\\\r\n".contains(byte)).unwrap_or(rest.len());
                let (text, after) = rest.split_at(end);
                self.go(after, Token::Text(text))
            }
        }
    }

    fn go(&mut self, rest: &'a [u8], token: Token<'a>) -> Option<Token<'a>> {
        self.rest = rest;
        Some(token)
    }

    /// Reads a control word or symbol after its backslash.
    fn control(&mut self, rest: &'a [u8]) -> Option<Token<'a>> {
        let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (word, mut after) = rest.split_at(letters.max(1).min(rest.len()));
        // A symbol that is not ASCII means nothing.
        let word = std::str::from_utf8(word).unwrap_or_default();
        if letters == 0 {
            return self.go(after, Token::Control(word, None));
        }
        let sign = usize::from(after.first() == Some(&b'-'));
        let digits = after.iter().skip(sign).take_while(|byte| byte.is_ascii_digit()).count();
        let mut parameter = None;
        if digits > 0 {
            let (number, rest) = after.split_at(sign + digits);
            parameter = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            after = rest;
        }
        if let [b' ', rest @ ..] = after {
            after = rest;
        }
        if word == "bin" {
            let length = usize::try_from(parameter.unwrap_or(0)).unwrap_or(0);
            after = after.get(length..).unwrap_or_default();
        }
        self.go(after, Token::Control(word, parameter))
    }
}

/// Where the text of a group goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Text,
    Nowhere,
    Fonts,
    Styles,
    /// The properties of the document, which are groups of their own.
    Information,
    /// A property of the document.
    Property(&'static str),
    /// The bullet or number of an item.
    ListText,
}

#[derive(Debug, Clone)]
struct Group {
    destination: Destination,
    /// The encoding of the font.
    encoding: &'static Encoding,
    /// How many characters follow `\u` for readers that do not know it.
    fallback: usize,
    is_hidden: bool,
    /// Whether the next control word names a destination that may be unknown.
    is_optional: bool,
    /// Whether a note or a text box ends with the group.
    ends: Option<Ends>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Note,
    TextBox,
}

/// The properties of a paragraph, which hold for the next ones until they are reset.
#[derive(Debug, Clone, Default)]
struct Paragraph {
    style: i32,
    outline: Option<usize>,
    level: usize,
    in_table: bool,
}

struct Reader {
    blocks: Blocks,
    properties: Properties,
    groups: Vec<Group>,
    paragraph: Paragraph,
    inline: Inline,
    /// What surrounds the note or text box that is being read.
    around: Vec<Inline>,
    /// The bullet or number of the item that is being read.
    list_text: Option<String>,
    cell: Blocks,
    row: String,
    is_in_table: bool,
    /// Bytes of text that have not been decoded.
    bytes: Vec<u8>,
    /// How many characters are still to be left out after `\u`.
    left_out: usize,
    high_surrogate: Option<u16>,
    default_encoding: &'static Encoding,
    fonts: HashMap<i32, &'static Encoding>,
    font: i32,
    default_font: i32,
    /// The levels of headings by style. A title has level 1.
    styles: HashMap<i32, usize>,
    style: (i32, Option<usize>),
    /// The text of a property, or the name of a style.
    text: String,
    date: [i32; 5],
    notes: usize,
    has_images: bool,
}

impl Reader {
    fn new(max_text: usize) -> Reader {
        Reader {
            blocks: Blocks::of_document(max_text),
            properties: Properties::default(),
            groups: Vec::new(),
            paragraph: Paragraph::default(),
            inline: Inline::default(),
            around: Vec::new(),
            list_text: None,
            cell: Blocks::of_cell(),
            row: String::new(),
            is_in_table: false,
            bytes: Vec::new(),
            left_out: 0,
            high_surrogate: None,
            default_encoding: WINDOWS_1252,
            fonts: HashMap::new(),
            font: 0,
            default_font: 0,
            styles: HashMap::new(),
            style: (0, None),
            text: String::new(),
            date: [0; 5],
            notes: 0,
            has_images: false,
        }
    }

    fn take(&mut self, token: Token) -> Result<(), Fault> {
        match token {
            Token::Byte(_) if self.left_out > 0 => self.left_out -= 1,
            Token::Byte(byte) => self.bytes.push(byte),
            Token::Text(text) => {
                let left_out = self.left_out.min(text.len());
                self.left_out -= left_out;
                self.bytes.extend(&text[left_out..]);
            }
            Token::Begin => {
                self.decode();
                self.left_out = 0;
                if self.groups.len() >= MAX_GROUPS {
                    return Err(Fault::Broken(format!("groups are nested more than {MAX_GROUPS} deep")));
                }
                let inherited =
                    self.groups.last().map(|group| Group { is_optional: false, ends: None, ..group.clone() });
                self.groups.push(inherited.unwrap_or(Group {
                    destination: Destination::Text,
                    encoding: self.default_encoding,
                    fallback: 1,
                    is_hidden: false,
                    is_optional: false,
                    ends: None,
                }));
            }
            Token::End => {
                self.decode();
                self.left_out = 0;
                if let Some(group) = self.groups.pop() {
                    self.end_group(&group);
                }
            }
            Token::Control(word, parameter) => {
                // A character that has a control word is a character, too.
                if self.left_out > 0 && character(word).is_some() {
                    self.left_out -= 1;
                    return Ok(());
                }
                self.left_out = 0;
                self.decode();
                self.control(word, parameter)?;
            }
        }
        Ok(())
    }

    /// Decodes the bytes that were read, whose characters may have more than one byte.
    fn decode(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let encoding = self.groups.last().map_or(self.default_encoding, |group| group.encoding);
        self.push(&encoding.decode_without_bom_handling(&bytes).0);
    }

    fn push(&mut self, text: &str) {
        let Some(group) = self.groups.last() else { return };
        self.high_surrogate = None;
        match group.destination {
            Destination::Text if !group.is_hidden => push_text(&mut self.inline.html, text),
            Destination::Styles | Destination::Property(_) => self.text.push_str(text),
            Destination::ListText => self.list_text.get_or_insert_default().push_str(text),
            _ => {}
        }
    }

    fn unicode(&mut self, parameter: i32) {
        let unit = parameter as u16;
        let decoded = match (self.high_surrogate.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => char::decode_utf16([high, unit]).next().and_then(Result::ok),
            (_, 0xd800..=0xdbff) => {
                self.high_surrogate = Some(unit);
                None
            }
            _ => char::from_u32(u32::from(unit)),
        };
        if let Some(character) = decoded {
            self.push(character.encode_utf8(&mut [0; 4]));
        }
    }

    fn control(&mut self, word: &str, parameter: Option<i32>) -> Result<(), Fault> {
        let Some(group) = self.groups.last_mut() else { return Ok(()) };
        let is_on = parameter != Some(0);
        let number = usize::try_from(parameter.unwrap_or(0)).unwrap_or(0);
        match word {
            "*" => group.is_optional = true,
            "u" => {
                self.left_out = group.fallback;
                self.unicode(parameter.unwrap_or(0));
            }
            "uc" => group.fallback = number.min(100),
            "v" | "deleted" => group.is_hidden = is_on,
            "plain" => {
                group.is_hidden = false;
                group.encoding = self.fonts.get(&self.default_font).copied().unwrap_or(self.default_encoding);
            }
            "deff" => self.default_font = parameter.unwrap_or(0),
            "f" => {
                self.font = parameter.unwrap_or(0);
                let encoding = self.fonts.get(&self.font).copied().unwrap_or(self.default_encoding);
                group.encoding = encoding;
            }
            "fcharset" if group.destination == Destination::Fonts => {
                self.fonts
                    .insert(self.font, encoding_of_charset(parameter.unwrap_or(1), self.default_encoding));
            }
            "ansicpg" | "mac" => {
                let page = u16::try_from(number).ok().and_then(codepage::to_encoding);
                self.default_encoding = if word == "mac" { MACINTOSH } else { page.unwrap_or(WINDOWS_1252) };
                group.encoding = self.default_encoding;
            }
            "s" if group.destination == Destination::Styles => self.style.0 = parameter.unwrap_or(0),
            "outlinelevel" if group.destination == Destination::Styles => self.style.1 = Some(number),
            "yr" | "mo" | "dy" | "hr" | "min" => {
                let place = ["yr", "mo", "dy", "hr", "min"].iter().position(|name| *name == word);
                self.date[place.unwrap_or(0)] = parameter.unwrap_or(0);
            }
            _ if destination(word).is_some() || group.is_optional => {
                let found = destination(word).unwrap_or(Destination::Nowhere);
                self.has_images |= word == "pict";
                // What is in a group that is left out is left out.
                let is_kept = match found {
                    Destination::Property(_) => group.destination == Destination::Information,
                    _ => group.destination != Destination::Nowhere,
                };
                group.is_optional = false;
                // The text in fields, shapes and objects stays where the group is.
                if is_kept && found != Destination::Text {
                    group.destination = found;
                    self.text.clear();
                    self.date = [0; 5];
                }
                match word {
                    // Notes in notes stay in the text.
                    _ if self.around.len() >= MAX_AROUND => {}
                    "footnote" if is_kept => self.begin(Ends::Note),
                    "shptxt" if is_kept => self.begin(Ends::TextBox),
                    _ => {}
                }
            }
            _ if group.destination == Destination::Text => self.text_control(word, number)?,
            _ => self.push(character(word).unwrap_or_default()),
        }
        Ok(())
    }

    /// A control word in the text of the document.
    fn text_control(&mut self, word: &str, number: usize) -> Result<(), Fault> {
        match word {
            "pard" => self.paragraph = Paragraph::default(),
            "s" => self.paragraph.style = i32::try_from(number).unwrap_or(0),
            "outlinelevel" => self.paragraph.outline = Some(number),
            "ilvl" => self.paragraph.level = number,
            "intbl" => self.paragraph.in_table = true,
            "par" | "sect" | "\n" | "\r" => self.end_paragraph(false)?,
            "line" | "page" | "column" | "nestcell" | "nestrow" => self.inline.html.push_str("<br>"),
            "cell" if self.around.is_empty() => {
                self.paragraph.in_table = true;
                self.end_paragraph(true)?;
                let cell = std::mem::replace(&mut self.cell, Blocks::of_cell());
                push_cell(&mut self.row, &cell.finish(), 1);
            }
            "row" if self.around.is_empty() => {
                if !std::mem::replace(&mut self.is_in_table, true) {
                    self.blocks.begin_table()?;
                }
                let row = std::mem::take(&mut self.row);
                self.blocks.row(&row)?;
            }
            word => self.push(character(word).unwrap_or_default()),
        }
        Ok(())
    }

    /// Begins a note or a text box, which ends with its group.
    fn begin(&mut self, ends: Ends) {
        self.around.push(std::mem::take(&mut self.inline));
        if let Some(group) = self.groups.last_mut() {
            (group.destination, group.ends) = (Destination::Text, Some(ends));
        }
    }

    fn end_group(&mut self, group: &Group) {
        if let (Some(ends), Some(around)) = (group.ends, group.ends.and_then(|_| self.around.pop())) {
            let inner = std::mem::replace(&mut self.inline, around);
            match ends {
                Ends::Note => {
                    self.notes += 1;
                    let is_cell = self.paragraph.in_table || !self.around.is_empty();
                    let around = if is_cell { Blocks::of_cell() } else { Blocks::default() };
                    self.inline.refer(self.notes, &inner.html, &around);
                }
                Ends::TextBox => self.inline.after.push(format!("<p>{}</p>", inner.html)),
            }
            self.inline.after.extend(inner.after);
            return;
        }
        let outer = self.groups.last().map_or(Destination::Nowhere, |outer| outer.destination);
        match group.destination {
            Destination::Property(key) if outer != group.destination => {
                let [year, month, day, hour, minute] = self.date;
                if year > 0 {
                    self.text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00");
                }
                self.properties.add(key, &std::mem::take(&mut self.text));
            }
            Destination::Styles => {
                let name = std::mem::take(&mut self.text).trim_end_matches(';').trim().to_lowercase();
                let named = name.strip_prefix("heading ").and_then(|level| level.trim().parse().ok());
                let by_outline = self.style.1.filter(|level| *level < 9).map(|level| level + 1);
                let level = named.or(by_outline).or((name == "title").then_some(1));
                self.styles.extend(level.map(|level| (self.style.0, level)));
                self.style = (0, None);
            }
            _ => {}
        }
    }

    /// Ends a paragraph of the document, of a cell, of a note or of a text box.
    fn end_paragraph(&mut self, is_last: bool) -> Result<(), Fault> {
        if !self.around.is_empty() {
            self.inline.html.push_str("<br>");
            return Ok(());
        }
        let inline = std::mem::take(&mut self.inline);
        let list_text = self.list_text.take();
        if self.paragraph.in_table {
            self.cell.paragraph(&inline.html)?;
            return inline.after.iter().try_for_each(|html| self.cell.append(html));
        }
        if is_last && inline.html.is_empty() && inline.after.is_empty() {
            return Ok(());
        }
        self.end_table()?;
        let outline = self.paragraph.outline.map(|level| (level < 9).then_some(level + 1));
        let of_style = self.styles.get(&self.paragraph.style).copied();
        match (outline.unwrap_or(of_style), list_text) {
            (Some(level), _) => self.blocks.heading(level, &inline.html)?,
            (None, Some(text)) => {
                let digits = text.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
                let number = digits.and_then(|digits| digits.parse().ok());
                let list = List { level: self.paragraph.level, number };
                self.blocks.item(list, &inline.html)?;
            }
            (None, None) => self.blocks.paragraph(&inline.html)?,
        }
        inline.after.iter().try_for_each(|html| self.blocks.append(html))
    }

    fn end_table(&mut self) -> Result<(), Fault> {
        // The last row may have no end.
        if !self.row.is_empty() {
            let row = std::mem::take(&mut self.row);
            if !std::mem::replace(&mut self.is_in_table, true) {
                self.blocks.begin_table()?;
            }
            self.blocks.row(&row)?;
        }
        if std::mem::take(&mut self.is_in_table) { self.blocks.end_table() } else { Ok(()) }
    }
}

/// The destination that a control word names.
fn destination(word: &str) -> Option<Destination> {
    Some(match word {
        "fonttbl" => Destination::Fonts,
        "stylesheet" => Destination::Styles,
        "title" => Destination::Property("title"),
        "author" => Destination::Property("author"),
        "subject" => Destination::Property("subject"),
        "keywords" => Destination::Property("keywords"),
        "creatim" => Destination::Property("created"),
        "revtim" => Destination::Property("modified"),
        "listtext" | "pntext" => Destination::ListText,
        "footnote" | "shptxt" | "shpinst" | "fldrslt" | "result" | "rtf" => Destination::Text,
        "info" => Destination::Information,
        "colortbl" | "pict" | "fldinst" | "objdata" | "header" | "headerl" | "headerr" | "headerf"
        | "footer" | "footerl" | "footerr" | "footerf" | "filetbl" | "revtbl" | "rsidtbl" | "listtable"
        | "listoverridetable" | "nonshppict" | "shppict" | "shprslt" | "sp" | "xe" | "tc" | "tcn" | "rxe"
        | "bkmkstart" | "bkmkend" | "atnid" | "atnauthor" | "annotation" | "ftnsep" | "ftnsepc" | "ftncn"
        | "aftnsep" | "aftnsepc" | "aftncn" | "pntxta" | "pntxtb" | "template" | "operator" | "doccomm"
        | "comment" | "private" | "themedata" | "datastore" | "latentstyles" | "generator" => {
            Destination::Nowhere
        }
        _ => return None,
    })
}

/// The character that a control word or symbol stands for.
fn character(word: &str) -> Option<&'static str> {
    Some(match word {
        "tab" | "~" | "emspace" | "enspace" | "qmspace" => " ",
        "_" => "-",
        "{" => "{",
        "}" => "}",
        "\\" => "\\",
        "emdash" => "—",
        "endash" => "–",
        "lquote" => "‘",
        "rquote" => "’",
        "ldblquote" => "“",
        "rdblquote" => "”",
        "bullet" => "•",
        _ => return None,
    })
}

/// The encoding of a Windows character set. Fonts of symbols are read as if they were of letters.
fn encoding_of_charset(charset: i32, default: &'static Encoding) -> &'static Encoding {
    let page = match charset {
        0 | 2 => 1252,
        77 => return MACINTOSH,
        128 => 932,
        129 | 130 => 949,
        134 => 936,
        136 => 950,
        161 => 1253,
        162 => 1254,
        163 => 1258,
        177 => 1255,
        178 => 1256,
        186 => 1257,
        204 => 1251,
        222 => 874,
        238 => 1250,
        _ => return default,
    };
    codepage::to_encoding(page).unwrap_or(default)
}

#[cfg(test)]
#[path = "rtf_tests.rs"]
mod tests;
