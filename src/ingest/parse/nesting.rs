//! Measures how deep HTML nests, before a parser that recurses, and copies, once a level meets it.
//!
//! A scan of the tags with HTML's rules for end tags that may be left out, so that a long page
//! without </p> or </li> is not taken for a deep one. Not exact: it only has to see trouble coming.

use std::collections::HashMap;

/// Elements inside each other at most. Real pages have some dozens; the converter takes several
/// kilobytes of stack for each.
pub const MAX_DEPTH: usize = 200;
/// Formatting elements (b, font, …) at most that are left open where their paragraph ends: a parser
/// opens all of them again in every paragraph that follows.
const MAX_DANGLING: usize = 60;

/// Tags of one kind left out close each other, up to the element that holds them.
const IMPLIED: [(&[&str], &[&str], &[&str]); 5] = [
    (&["li"], &["li"], &["ul", "ol", "menu"]),
    (&["dt", "dd"], &["dt", "dd"], &["dl"]),
    (&["td", "th"], &["td", "th"], &["tr", "table"]),
    (&["tr", "tbody", "thead", "tfoot"], &["tr", "tbody", "thead", "tfoot"], &["table"]),
    (&["option", "optgroup"], &["option"], &["select"]),
];
const VOID: [&str; 16] = [
    "area", "base", "basefont", "br", "col", "embed", "frame", "hr", "img", "input", "keygen", "link",
    "meta", "param", "source", "wbr",
];
const INLINE: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];
/// Their content is no HTML.
const RAW: [&str; 8] = ["script", "style", "textarea", "title", "noscript", "iframe", "noembed", "xmp"];

/// What is wrong with the nesting of `html`, if anything.
pub fn problem(html: &str) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    let mut dangling: HashMap<String, usize> = HashMap::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            // An unclosed comment swallows the rest.
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let closing = rest.starts_with('/');
        let body = rest.strip_prefix('/').unwrap_or(rest);
        if !body.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let length =
            body.find(|c: char| c == '>' || c == '/' || c.is_ascii_whitespace()).unwrap_or(body.len());
        let name = body[..length].to_ascii_lowercase();
        let end = tag_end(body);
        let attributes = &body[length..end.saturating_sub(1).max(length)];
        rest = &body[end..];
        if closing {
            if let Some(at) = open.iter().rposition(|o| *o == name) {
                close(&mut open, at, &mut dangling);
            } else if let Some(count) = dangling.get_mut(&name) {
                *count = count.saturating_sub(1);
            }
            continue;
        }
        if VOID.contains(&name.as_str()) || attributes.ends_with('/') {
            continue;
        }
        if RAW.contains(&name.as_str()) {
            rest = raw_end(rest, &name);
            continue;
        }
        imply(&mut open, &name, &mut dangling);
        open.push(name);
        if open.len() > MAX_DEPTH {
            return Some(format!("its HTML nests elements more than {MAX_DEPTH} deep"));
        }
        if dangling.values().sum::<usize>() > MAX_DANGLING {
            return Some(format!("its HTML leaves more than {MAX_DANGLING} formatting elements open"));
        }
    }
    None
}

/// Bytes up to and with the tag's '>', one in a quoted attribute not counted.
fn tag_end(tag: &str) -> usize {
    let mut quote = None;
    for (i, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return i + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    tag.len()
}

/// What follows the end tag of an element whose content is no HTML.
fn raw_end<'a>(text: &'a str, name: &str) -> &'a str {
    let mut at = 0;
    while let Some(found) = text[at..].find("</") {
        at += found;
        let tag = &text[at + 2..];
        if tag.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)) {
            return &tag[tag_end(tag)..];
        }
        at += 2;
    }
    ""
}

/// Closes what the start of `name` closes.
fn imply(open: &mut Vec<String>, name: &str, dangling: &mut HashMap<String, usize>) {
    for (starts, closed, holders) in IMPLIED {
        if starts.contains(&name) {
            let holder = open.iter().rposition(|o| holders.contains(&o.as_str())).map_or(0, |i| i + 1);
            if let Some(at) = open[holder..].iter().position(|o| closed.contains(&o.as_str())) {
                close(open, holder + at, dangling);
            }
        }
    }
    if !INLINE.contains(&name) && !matches!(name, "span" | "sub" | "sup" | "label" | "button") {
        // A block ends the paragraph it stands in, with all inline elements in it.
        let at = open.iter().rposition(|o| !INLINE.contains(&o.as_str()) && o != "span");
        if let Some(at) = at.filter(|&at| open[at] == "p") {
            close(open, at, dangling);
        }
    }
}

/// Closes the element at `at` and all inside it; formatting inside it was left open.
fn close(open: &mut Vec<String>, at: usize, dangling: &mut HashMap<String, usize>) {
    for inner in open.drain(at..).skip(1) {
        if INLINE.contains(&inner.as_str()) {
            // Of one kind a parser opens three again at most (with the same attributes).
            let count = dangling.entry(inner).or_default();
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_tags_left_out_make_no_depth() {
        for unit in
            ["<p>a <b>c</b>", "<li>x", "<tr><td>a<td>b", "<dt>a<dd>b", "<br><img src='a>b'>", "<option>x"]
        {
            for (head, tail) in [("", ""), ("<ul><table><dl>", "</dl></table></ul>")] {
                assert_eq!(problem(&format!("{head}{}{tail}", unit.repeat(5000))), None, "{unit}");
            }
        }
    }

    #[test]
    fn tags_in_scripts_comments_and_attributes_do_not_count() {
        let tags = "<div>".repeat(1000);
        for html in [
            format!("<script>{tags}</script>"),
            format!("<!-- {tags} -->"),
            format!("<p title=\"{tags}\">x</p>"),
            format!("<STYLE>{tags}</Style>"),
        ] {
            assert_eq!(problem(&html), None);
        }
    }

    #[test]
    fn true_depth_and_dangling_formats_are_seen() {
        assert!(problem(&"<div>".repeat(100_000)).is_some());
        assert!(problem(&"<b>".repeat(1000)).is_some());
        let dangling = format!("<p>{}{}", "<b><font>".repeat(80), "<p>x".repeat(100_000));
        assert!(problem(&dangling).is_some());
        assert_eq!(problem(&format!("{}{}", "<div>".repeat(150), "</div>".repeat(150))), None);
    }
}
