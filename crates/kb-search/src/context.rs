//! Writes passages as one text for a prompt, in numbered blocks that name the source of each passage.
//! Documents are not trusted, so nothing in a passage may end its block or look like another block.

use kb_types::context_format::ContextFormat;
use kb_types::error::Result;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The most characters of a title or an id in the header of a block, where full headers leave too little room
/// for blocks.
const SHORT: usize = 60;

/// A passage and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Cited {
    pub external_id: String,
    pub title: Option<String>,
    pub uri: Option<String>,
    /// The titles of the headings above it, outermost first.
    pub headings: Vec<String>,
    /// Its position in the document's text in characters, the end exclusive. None if the document has been
    /// edited since.
    pub span: Option<(i32, i32)>,
    pub content: String,
    /// Whether the end of the passage was cut off.
    pub is_truncated: bool,
}

/// A text for a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub text: String,
    pub tokens: usize,
    /// The blocks in their order: which passage each contains, and where its content is.
    pub blocks: Vec<CitedBlock>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CitedBlock {
    pub passage: usize,
    pub span: Option<(i32, i32)>,
    /// How many bytes of the passage it has, from its beginning.
    pub bytes: usize,
    pub is_truncated: bool,
}

/// Counts the tokens of texts.
pub type Count<'a> = &'a dyn Fn(&[String]) -> Result<Vec<usize>>;

/// Writes passages, best first, as blocks numbered from 1, with at most `max_tokens` tokens together as
/// `count` counts them. If not all fit, headers are shortened where that lets more passages fit, and passages
/// that do not fit after better ones are left out. The best passage is cut if it does not fit by itself.
pub fn text(
    passages: &[Cited],
    format: ContextFormat,
    max_tokens: Option<usize>,
    count: Count,
) -> Result<Written> {
    text_from(1, passages, format, max_tokens, count)
}

/// Does what [`text`] does, but numbers the blocks from `first` on.
pub fn text_from(
    first: usize,
    passages: &[Cited],
    format: ContextFormat,
    max_tokens: Option<usize>,
    count: Count,
) -> Result<Written> {
    let page = Layout { first, passages, format, count };
    let whole: Vec<usize> = (0..passages.len()).collect();
    let written = page.written(&whole, Header::Whole)?;
    let Some(most) = max_tokens.filter(|most| written.tokens > *most) else { return Ok(written) };
    let (long, short) = (page.fitting(Header::Whole, most)?, page.fitting(Header::Short, most)?);
    // The best passage counts most, and then the number of passages.
    let worth = |fitting: &[usize]| (fitting.first() == Some(&0), fitting.len());
    let (mut chosen, header) = match worth(&short) > worth(&long) {
        true => (short, Header::Short),
        false => (long, Header::Whole),
    };
    if chosen.first() != Some(&0)
        && let Some(cut) = page.cut(most)?
    {
        return Ok(cut);
    }
    // Blocks were counted separately and may have a few more tokens together.
    loop {
        let written = page.written(&chosen, header)?;
        if written.tokens <= most || chosen.is_empty() {
            return Ok(written);
        }
        if chosen == [0]
            && let Some(cut) = page.cut(most)?
        {
            return Ok(cut);
        }
        chosen.pop();
    }
}

/// How much of the header of a block is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Header {
    Whole,
    /// Id and title, shortened.
    Short,
}

struct Layout<'a> {
    /// The number of the first block.
    first: usize,
    passages: &'a [Cited],
    format: ContextFormat,
    count: Count<'a>,
}

impl Layout<'_> {
    /// The places of the passages that fit, each after those before it.
    fn fitting(&self, header: Header, most: usize) -> Result<Vec<usize>> {
        let mut texts = vec![join(&[], self.format)];
        texts.extend((self.first..).zip(self.passages).map(|(number, passage)| {
            let block = block(number, &passage.under(header), self.format);
            block + separator(self.format)
        }));
        let counts = (self.count)(&texts)?;
        let mut tokens = counts.first().copied().unwrap_or_default();
        let mut fitting = Vec::new();
        for (place, more) in counts.into_iter().skip(1).enumerate() {
            if tokens + more <= most {
                tokens += more;
                fitting.push(place);
            }
        }
        Ok(fitting)
    }

    fn written(&self, places: &[usize], header: Header) -> Result<Written> {
        let cited: Vec<(usize, Cited)> =
            places.iter().map(|place| (*place, self.passages[*place].under(header))).collect();
        self.write(&cited)
    }

    fn write(&self, cited: &[(usize, Cited)]) -> Result<Written> {
        let blocks: Vec<String> =
            (self.first..).zip(cited).map(|(number, (_, cited))| block(number, cited, self.format)).collect();
        let text = join(&blocks, self.format);
        let tokens = (self.count)(std::slice::from_ref(&text))?.first().copied().unwrap_or_default();
        let block = |(passage, cited): &(usize, Cited)| CitedBlock {
            passage: *passage,
            bytes: cited.content.len(),
            span: self.passages[*passage].span.map(|(start, end)| match cited.is_truncated {
                true => (start, start.saturating_add(cited.content.chars().count() as i32)),
                false => (start, end),
            }),
            is_truncated: cited.is_truncated,
        };
        Ok(Written { text, tokens, blocks: cited.iter().map(block).collect() })
    }

    /// As much of the best passage as fits under a short header. None where not even a word fits.
    fn cut(&self, most: usize) -> Result<Option<Written>> {
        let Some(best) = self.passages.first() else { return Ok(None) };
        let ends: Vec<usize> = best.content.char_indices().map(|(byte, _)| byte).skip(1).collect();
        let (mut fits, mut least, mut beyond) = (None, 0, ends.len());
        while least < beyond {
            let middle = (least + beyond) / 2;
            let beginning = best.beginning(ends[middle]);
            let has_words = !beginning.content.is_empty();
            let written = self.write(&[(0, beginning)])?;
            if written.tokens <= most {
                (fits, least) = (Some(written).filter(|_| has_words), middle + 1);
            } else {
                beyond = middle;
            }
        }
        Ok(fits)
    }
}

fn block(number: usize, passage: &Cited, format: ContextFormat) -> String {
    match format {
        ContextFormat::Markdown => markdown(number, passage),
        ContextFormat::Xml => xml(number, passage),
        ContextFormat::Json => json(number, passage),
        ContextFormat::List => list(number, passage),
    }
}

fn separator(format: ContextFormat) -> &'static str {
    match format {
        ContextFormat::Markdown => "\n\n",
        ContextFormat::Xml => "",
        ContextFormat::Json => ",\n",
        ContextFormat::List => "\n",
    }
}

fn join(blocks: &[String], format: ContextFormat) -> String {
    let joined = blocks.join(separator(format));
    match format {
        ContextFormat::Markdown | ContextFormat::List => joined,
        ContextFormat::Xml => format!("<documents>\n{joined}</documents>"),
        ContextFormat::Json if blocks.is_empty() => "[]".into(),
        ContextFormat::Json => format!("[\n{joined}\n]"),
    }
}

impl Cited {
    fn under(&self, header: Header) -> Cited {
        match header {
            Header::Whole => self.clone(),
            Header::Short => self.short(),
        }
    }

    /// The passage with a short header.
    fn short(&self) -> Cited {
        let (title, external_id) = (self.title.as_deref().map(shortened), shortened(&self.external_id));
        Cited { title, external_id, uri: None, headings: Vec::new(), span: None, ..self.clone() }
    }

    /// The first `bytes` bytes with a short header. They end with a word, where one ends in their second
    /// half.
    fn beginning(&self, bytes: usize) -> Cited {
        let beginning = &self.content[..bytes];
        let is_inside_word = self.content[bytes..].starts_with(|c: char| !c.is_whitespace());
        let word_end = beginning.rfind(char::is_whitespace).filter(|end| is_inside_word && *end > bytes / 2);
        let content = beginning[..word_end.unwrap_or(bytes)].trim_end().to_string();
        Cited { content, is_truncated: true, ..self.short() }
    }
}

/// The beginning of a text that is longer than [`SHORT`].
fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHORT) {
        None => text.to_string(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

/// The name of the source: its title, or else its id.
fn name(passage: &Cited) -> &str {
    passage.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or(&passage.external_id)
}

/// Where a passage comes from, on one line of Markdown.
fn source(passage: &Cited) -> String {
    let mut source = vec![format!("id: {}", inline(&passage.external_id))];
    source.extend(passage.uri.iter().map(|uri| format!("uri: {}", inline(uri))));
    if !passage.headings.is_empty() {
        let headings: Vec<String> = passage.headings.iter().map(|title| inline(title)).collect();
        source.push(format!("section: {}", headings.join(" > ")));
    }
    source.extend(passage.span.map(|(start, end)| format!("characters: {start}-{end}")));
    source.extend(passage.is_truncated.then(|| "truncated".to_string()));
    source.join(", ")
}

/// An item of a list. Every line of the passage is indented, so that none begins another item.
fn list(number: usize, passage: &Cited) -> String {
    let mut item = format!("- [{number}] {} ({})", inline(name(passage)), source(passage));
    let is_break =
        |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    for line in passage.content.split(is_break) {
        item.push('\n');
        if !line.is_empty() {
            item.push_str("  ");
            item.push_str(line);
        }
    }
    item
}

fn markdown(number: usize, passage: &Cited) -> String {
    // A fence ends at a line with as many backticks as it began with.
    let longest = passage.content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!(
        "## [{number}] {}\n\n{}\n\n{fence}text\n{}\n{fence}",
        inline(name(passage)),
        source(passage),
        passage.content
    )
}

/// Text within a line of Markdown: on one line, and without anything that would be parsed as markup.
fn inline(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let is_break = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    for word in text.split(is_break).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        for character in word.chars() {
            if matches!(character, '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '#' | '&' | '|' | '~') {
                line.push('\\');
            }
            line.push(character);
        }
    }
    line
}

fn xml(number: usize, passage: &Cited) -> String {
    let mut attributes = format!("index=\"{number}\" id=\"{}\"", escaped(&passage.external_id));
    let mut add = |name: &str, value: &str| attributes.push_str(&format!(" {name}=\"{}\"", escaped(value)));
    passage.title.iter().for_each(|title| add("title", title));
    passage.uri.iter().for_each(|uri| add("uri", uri));
    if !passage.headings.is_empty() {
        add("section", &passage.headings.join(" > "));
    }
    if let Some((start, end)) = passage.span {
        add("start_char", &start.to_string());
        add("end_char", &end.to_string());
    }
    if passage.is_truncated {
        add("truncated", "true");
    }
    format!("<document {attributes}>\n{}\n</document>\n", content(&passage.content))
}

/// A text as the content of an element of XML, which it cannot end.
pub fn xml_text(text: &str) -> String {
    content(text)
}

/// Text between tags. A carriage return is escaped, because it would be read as a line feed.
fn content(text: &str) -> String {
    replaced(text, |character| match character {
        '<' => Some(Cow::Borrowed("&lt;")),
        '>' => Some("&gt;".into()),
        '&' => Some("&amp;".into()),
        '\r' => Some("&#13;".into()),
        _ => None,
    })
}

/// Text in an attribute, where other white space would be read as a space.
fn escaped(text: &str) -> String {
    replaced(text, |character| match character {
        '<' => Some(Cow::Borrowed("&lt;")),
        '>' => Some("&gt;".into()),
        '&' => Some("&amp;".into()),
        '"' => Some("&quot;".into()),
        '\n' | '\t' | '\r' => Some(format!("&#{};", character as u32).into()),
        _ => None,
    })
}

/// Replaces some characters, and drops those that XML 1.0 cannot contain.
fn replaced(text: &str, replace: impl Fn(char) -> Option<Cow<'static, str>>) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match replace(character) {
            Some(other) => out.push_str(&other),
            None if matches!(character, '\u{fffe}' | '\u{ffff}')
                || (character < ' ' && !matches!(character, '\n' | '\t')) =>
            {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            None => out.push(character),
        }
    }
    out
}

fn json(number: usize, passage: &Cited) -> String {
    let block = json!({
        "index": number,
        "id": passage.external_id,
        "title": passage.title,
        "uri": passage.uri,
        "section": Some(&passage.headings).filter(|headings| !headings.is_empty()),
        "start_char": passage.span.map(|(start, _)| start),
        "end_char": passage.span.map(|(_, end)| end),
        "content": passage.content,
        "truncated": passage.is_truncated.then_some(true),
    });
    match block {
        // Members without a value are not written, to save tokens.
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect()).to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
