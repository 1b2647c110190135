//! WebVTT and SubRip: subtitles of films, and transcripts of meetings.
//!
//! The cues are joined to sentences and paragraphs, because a cue ends where the screen is full. The reader
//! is our own: the libraries refuse a file for one broken cue, and know neither speakers nor captions that
//! roll.

use super::Format;
use crate::charset;
use kb_types::extraction::{Extraction, Fault, File};
use kb_types::{Mark, Marked};
use std::collections::HashMap;

pub const VTT: Format = Format {
    content_types: &["text/vtt"],
    extensions: &["vtt"],
    is_text: true,
    read: |file| read(file, true),
};

pub const SRT: Format = Format {
    content_types: &["application/x-subrip", "text/x-subrip", "application/srt", "text/srt"],
    extensions: &["srt"],
    is_text: true,
    read: |file| read(file, false),
};

/// A silence of so many milliseconds begins a paragraph.
const PAUSE: u64 = 3_000;
/// How many lines captions that roll show at most.
const MOST_ROLLING: usize = 4;
/// The most words and bytes of a speaker's name before a colon.
const MOST_WORDS: usize = 4;
/// The most bytes of a tag.
const LONGEST_TAG: usize = 300;
const LONGEST_NAME: usize = 60;

#[derive(Debug, Default)]
struct Cue {
    start_ms: u64,
    end_ms: u64,
    lines: Vec<Line>,
}

/// What is said in a line of a cue.
#[derive(Debug, Default)]
struct Line {
    speaker: Speaker,
    text: String,
}

#[derive(Debug, Default, Clone, PartialEq)]
enum Speaker {
    /// The one of the line before.
    #[default]
    Same,
    /// Another one, who has no name.
    Another,
    Named(String),
}

fn read(file: &File, is_vtt: bool) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let mut metadata = decoded.metadata();
    let is_marked = is_vtt && decoded.text.starts_with("WEBVTT");
    let mut title = None;
    if is_marked {
        let mut header = decoded.text.lines().take_while(|line| !line.is_empty());
        let words = header.next().unwrap_or_default()["WEBVTT".len()..].trim_start_matches([' ', '\t', '-']);
        title = Some(words.trim().to_string()).filter(|title| !title.is_empty());
        for line in header {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("language")
            {
                metadata.insert("language".into(), value.trim().into());
            }
        }
    }
    let mut cues = cues(&decoded.text, is_vtt);
    if cues.is_empty() && !is_marked && !decoded.text.trim().is_empty() {
        return Err(Fault::Broken("it has no cues".into()));
    }
    // Some programs write the cues of one speaker after those of another.
    cues.sort_by_key(|cue| cue.start_ms);
    name_speakers(&mut cues);
    drop_repeats(&mut cues);
    let (text, marks) = joined(cues);
    Ok(Extraction { text_type: "text/plain".into(), text, title, metadata, marks, ..Extraction::default() })
}

/// The cues, in the order of the file. What is between them is no text: numbers, names, notes and styles.
fn cues(text: &str, is_vtt: bool) -> Vec<Cue> {
    let mut cues: Vec<Cue> = Vec::new();
    let mut payload: Vec<&str> = Vec::new();
    let mut is_open = false;
    let close = |cues: &mut Vec<Cue>, payload: &mut Vec<&str>| {
        if let Some(cue) = cues.last_mut() {
            cue.lines = lines(payload, is_vtt);
        }
        payload.clear();
    };
    for line in text.lines() {
        if let Some((start_ms, end_ms)) = times(line) {
            // The number of this cue, where the blank line before it is missing or has spaces.
            if payload.last().is_some_and(|last| is_number(last)) {
                payload.pop();
            }
            close(&mut cues, &mut payload);
            cues.push(Cue { start_ms, end_ms, lines: Vec::new() });
            is_open = true;
        } else if is_vtt && line.is_empty() {
            is_open = false;
        } else if is_open {
            payload.push(line);
        }
    }
    close(&mut cues, &mut payload);
    cues
}

fn is_number(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
}

/// The times of a line such as `00:01:02.500 --> 00:01:04.000 align:start`, in milliseconds.
fn times(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = line.split_once("-->")?;
    let start = time(start.trim())?;
    let end = time(rest.split_whitespace().next()?)?;
    Some((start, end.max(start)))
}

fn time(text: &str) -> Option<u64> {
    let (clock, fraction) = text.rsplit_once(['.', ',']).unwrap_or((text, "0"));
    let number = |text: &str| is_number(text).then(|| text.parse::<u64>().ok()).flatten();
    let mut seconds = 0u64;
    let parts = clock.split(':').collect::<Vec<_>>();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    for part in parts {
        seconds = seconds.checked_mul(60)?.checked_add(number(part)?)?;
    }
    let thousandths = number(&format!("{fraction:0<3}").chars().take(3).collect::<String>())?;
    seconds.checked_mul(1000)?.checked_add(thousandths)
}

/// What is said in the lines of a cue. A line in which the voice changes becomes two.
fn lines(payload: &[&str], is_vtt: bool) -> Vec<Line> {
    let mut found = Vec::new();
    let mut speaker = Speaker::Same;
    let mut voice = String::new();
    for line in payload {
        let mut rest = *line;
        let mut text = String::new();
        while let Some(at) = rest.find(['<', '{']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let is_brace = rest.starts_with('{');
            let closing = if is_brace { b'}' } else { b'>' };
            let end = rest.bytes().take(LONGEST_TAG).position(|byte| byte == closing);
            let tag = end.map_or("", |end| &rest[1..end]);
            // {\an8} and {b} are positions and styles of other programs. "I <3 you" has no tag.
            let is_tag = match is_brace {
                true => tag.starts_with('\\') || matches!(tag, "b" | "i" | "u" | "/b" | "/i" | "/u"),
                false => tag.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || is_vtt),
            };
            let Some(end) = end.filter(|_| is_tag) else {
                text.push_str(&rest[..1]);
                rest = &rest[1..];
                continue;
            };
            rest = &rest[end + 1..];
            if let Some(name) = is_vtt.then(|| named_voice(tag)).flatten()
                && name != voice
            {
                add(&mut found, &mut speaker, &text);
                text.clear();
                speaker = if name.is_empty() { Speaker::Another } else { Speaker::Named(name.clone()) };
                voice = name;
            }
        }
        text.push_str(rest);
        add(&mut found, &mut speaker, &text);
    }
    found
}

/// The name in a tag such as `<v.loud Mary Smith>`.
fn named_voice(tag: &str) -> Option<String> {
    let rest = tag.strip_prefix('v')?;
    if !rest.starts_with(['.', ' ', '\t']) {
        return None;
    }
    let (_, name) = rest.split_once([' ', '\t']).unwrap_or_default();
    Some(plain(name))
}

/// Adds a line, if it says anything. `speaker` is who begins to speak in it.
fn add(found: &mut Vec<Line>, speaker: &mut Speaker, text: &str) {
    let mut text = plain(text);
    // Captions show with >>, subtitles with a dash, that somebody else speaks.
    let dash = text.strip_prefix(['-', '–', '—']).filter(|rest| !rest.starts_with(['-', '–', '—']));
    if let Some(rest) = text.strip_prefix(">>").map(|rest| rest.trim_start_matches('>')).or(dash) {
        if *speaker == Speaker::Same {
            *speaker = Speaker::Another;
        }
        text = rest.trim_start().to_string();
    }
    if !text.is_empty() {
        found.push(Line { speaker: std::mem::take(speaker), text });
    }
}

/// A text without character references, and with one space between words.
fn plain(text: &str) -> String {
    let text = match text.contains('&') {
        true => [("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&lrm;", ""), ("&rlm;", ""), ("&amp;", "&")]
            .iter()
            .fold(text.to_string(), |text, (name, value)| text.replace(name, value)),
        false => text.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Finds the names before colons. NAME: is clear by itself. Name: is clear in a file where most cues begin in
/// this way, such as the transcript of a meeting.
fn name_speakers(cues: &mut [Cue]) {
    let mut times: HashMap<String, usize> = HashMap::new();
    for cue in cues.iter() {
        if let Some((name, _)) = cue.lines.first().and_then(|line| before_colon(&line.text)) {
            *times.entry(name.to_string()).or_default() += 1;
        }
    }
    times.retain(|_, times| *times > 1);
    let is_usual = 2 * times.values().sum::<usize>() > cues.len();
    for line in cues.iter_mut().flat_map(|cue| &mut cue.lines) {
        if matches!(line.speaker, Speaker::Named(_)) {
            continue;
        }
        if let Some((name, rest)) = before_colon(&line.text) {
            let letters = name.chars().filter(|c| c.is_alphabetic());
            let is_upper = letters.clone().count() > 1 && letters.clone().all(char::is_uppercase);
            if is_upper || is_usual && times.contains_key(name) {
                line.speaker = Speaker::Named(name.to_string());
                line.text = rest.to_string();
            }
        }
    }
    for cue in cues {
        cue.lines.retain(|line| !line.text.is_empty() || line.speaker != Speaker::Same);
    }
}

/// What may be a name before a colon, and what follows it.
fn before_colon(text: &str) -> Option<(&str, &str)> {
    let beginning = &text[..text.floor_char_boundary(LONGEST_NAME)];
    let (name, _) = beginning.split_once(':')?;
    let rest = &text[name.len() + 1..];
    let is_separate = rest.is_empty() || rest.starts_with(' ');
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_alphanumeric() && !c.is_lowercase() || c == '(')
            && word.chars().all(|c| c.is_alphanumeric() || ".'’-_()#&".contains(c))
    };
    let mut words = name.split(' ');
    let is_name = is_separate
        && name.starts_with(|c: char| c.is_alphabetic())
        && words.clone().count() <= MOST_WORDS
        && words.all(is_word);
    is_name.then(|| (name, rest.trim_start()))
}

/// Leaves out what a cue repeats of the one before, in files whose captions roll: a line moves up, or grows
/// word by word, and is in each of the cues that show it.
fn drop_repeats(cues: &mut [Cue]) {
    let found: Vec<(usize, usize)> =
        cues.windows(2).map(|pair| repeated(&pair[0].lines, &pair[1].lines)).collect();
    let rolling = found.iter().filter(|found| **found != (0, 0)).count();
    // In other files what is said twice was said twice.
    if rolling < 2 || 2 * rolling < found.len() {
        return;
    }
    for (cue, (lines, bytes)) in cues.iter_mut().skip(1).zip(found) {
        cue.lines.drain(..lines);
        if let Some(first) = cue.lines.first_mut().filter(|_| bytes > 0) {
            first.text = first.text[bytes..].trim_start().to_string();
            first.speaker = Speaker::Same;
            if first.text.is_empty() {
                cue.lines.remove(0);
            }
        }
    }
}

/// How many lines, and then how many bytes of the next line, repeat the end of the cue before.
fn repeated(before: &[Line], lines: &[Line]) -> (usize, usize) {
    for count in (1..=MOST_ROLLING.min(before.len()).min(lines.len())).rev() {
        let old = &before[before.len() - count..];
        let whole = old.iter().zip(lines).take(count - 1).all(|(old, new)| old.text == new.text);
        let (last, next) = (&old[count - 1].text, &lines[count - 1].text);
        let grows =
            next.strip_prefix(last.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        if whole && grows {
            return (count - 1, last.len());
        }
    }
    (0, 0)
}

/// The text of the cues, and their marks.
fn joined(cues: Vec<Cue>) -> (String, Vec<Marked>) {
    let mut text = String::new();
    let mut marks: Vec<Marked> = Vec::new();
    let mut speaker: Option<String> = None;
    let mut last_end = 0;
    for cue in cues {
        if let (true, Some(Marked { mark: Mark::Cue { end_ms, .. }, .. })) =
            (cue.lines.is_empty(), marks.last_mut())
        {
            // It shows once more what was said before.
            if cue.start_ms <= last_end {
                *end_ms = cue.end_ms.max(*end_ms);
                last_end = last_end.max(cue.end_ms);
            }
            continue;
        }
        for (number, line) in cue.lines.into_iter().enumerate() {
            let changes = match &line.speaker {
                Speaker::Same => false,
                Speaker::Another => true,
                Speaker::Named(name) => speaker.as_ref() != Some(name),
            };
            match line.speaker {
                Speaker::Same => {}
                Speaker::Another => speaker = None,
                Speaker::Named(name) => speaker = Some(name),
            }
            let pauses = number == 0 && cue.start_ms.saturating_sub(last_end) >= PAUSE;
            let begins = changes || pauses;
            if !text.is_empty() {
                text.push_str(if begins { "\n\n" } else { between(&text, &line.text, number == 0) });
            }
            if number == 0 || changes {
                let (start_ms, end_ms) = (cue.start_ms, cue.end_ms);
                let mark = Mark::Cue { start_ms, end_ms, speaker: speaker.clone() };
                marks.push(Marked { offset: text.len(), mark });
            }
            if let Some(name) = speaker.as_ref().filter(|_| changes) {
                text.push_str(name);
                text.push_str(": ");
            }
            text.push_str(&line.text);
        }
        last_end = last_end.max(cue.end_ms);
    }
    (text, marks)
}

/// What separates a line from the text before it, which belongs to the same paragraph.
fn between(before: &str, line: &str, begins_cue: bool) -> &'static str {
    let last = before.chars().next_back().unwrap_or_default();
    let closes = |c: &char| ['"', '\'', '”', '’', ')', ']', '»', '」', '』'].contains(c);
    let ending = before.chars().rev().take(5).find(|c| !closes(c));
    let ends = ending.is_some_and(|c| ['.', '!', '?', '…', '。', '！', '？', '♪'].contains(&c));
    if begins_cue && ends {
        return "\n";
    }
    let unspaced =
        |c: char| matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}');
    if unspaced(last) && line.starts_with(unspaced) { "" } else { " " }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, name: &str) -> Result<Extraction, Fault> {
        let file =
            File { name: Some(name.into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file)
    }

    /// For each cue: its times, its speaker, and the text from its mark to the next.
    fn parts(extraction: &Extraction) -> Vec<(u64, u64, Option<&str>, &str)> {
        let ends = extraction.marks.iter().skip(1).map(|next| next.offset).chain([extraction.text.len()]);
        let mut parts = Vec::new();
        for (marked, end) in extraction.marks.iter().zip(ends) {
            let text = extraction.text[marked.offset..end].trim_end();
            match &marked.mark {
                Mark::Cue { start_ms, end_ms, speaker } => {
                    parts.push((*start_ms, *end_ms, speaker.as_deref(), text));
                }
                other => panic!("{other:?}"),
            }
        }
        parts
    }

    #[test]
    fn a_sentence_over_several_cues_is_one_line_and_a_pause_ends_the_paragraph() {
        let srt = "1\n00:00:01,000 --> 00:00:03,500\n<i>The harbour</i> closes\nat nine,\n\n2\n00:00:03,600 --> 00:00:05,000 X1:1 X2:2\n{\\an8}every day.\n\n3\n00:00:05,100 --> 00:00:06,000\nExcept in May &amp; I <3 it.\n4\n00:01:00,000 --> 01:00:01,000\nLater.\n";
        let found = of(srt, "a.srt").unwrap();
        assert_eq!(found.text, "The harbour closes at nine, every day.\nExcept in May & I <3 it.\n\nLater.");
        assert_eq!(
            parts(&found)[1..],
            [
                (3_600, 5_000, None, "every day."),
                (5_100, 6_000, None, "Except in May & I <3 it."),
                (60_000, 3_601_000, None, "Later.")
            ]
        );
    }

    #[test]
    fn what_is_between_the_cues_of_webvtt_is_no_text() {
        let vtt = "WEBVTT - The harbour\nKind: captions\nLanguage: de\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:fred\n\nNOTE a\nnote\n\nintro\n00:01.000 --> 00:02.000 align:start\n<c.yellow>One</c> <00:01.500>two\n\nNOTE end\n\n00:02.000 --> 00:03.000\nthree.\n";
        let found = of(vtt, "a.vtt").unwrap();
        assert_eq!((found.text.as_str(), found.title.as_deref()), ("One two three.", Some("The harbour")));
        assert_eq!(found.metadata["language"], "de");
        assert_eq!(found.content_type, "text/vtt");
    }

    #[test]
    fn speakers_are_read_from_voices_names_in_capitals_and_usual_names() {
        let vtt = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Mary Smith>Who is there?</v> <v Bob>Me.\n\n00:02.000 --> 00:03.000\n<v Bob>And you\n\n00:03.000 --> 00:04.000\n<v Bob>know it.</v>\n";
        let found = of(vtt, "a.vtt").unwrap();
        assert_eq!(found.text, "Mary Smith: Who is there?\n\nBob: Me.\nAnd you know it.");
        assert_eq!(parts(&found)[1], (1_000, 2_000, Some("Bob"), "Bob: Me."));
        assert_eq!(parts(&found)[3], (3_000, 4_000, Some("Bob"), "know it."));

        let srt = "1\n00:00:01,000 --> 00:00:02,000\n>> DR. LEE: It is 10:30.\nNote: a test\n\n2\n00:00:02,000 --> 00:00:03,000\n>> Really?\n- Yes.\n";
        assert_eq!(of(srt, "a.srt").unwrap().text, "DR. LEE: It is 10:30. Note: a test\n\nReally?\n\nYes.");

        let cue = |second: u64, text: &str| {
            format!("{second}\n00:00:{second:02}.000 --> 00:00:{:02}.000\n{text}\n\n", second + 1)
        };
        let meeting = ["Ann Lee: Shall we", "Ann Lee: begin?", "Jo: Yes.", "Jo: Remember: ten minutes."];
        let meeting: String = (0..).zip(meeting).map(|(second, text)| cue(second, text)).collect();
        let found = of(&format!("WEBVTT\n\n{meeting}"), "a.vtt").unwrap();
        assert_eq!(found.text, "Ann Lee: Shall we begin?\n\nJo: Yes.\nRemember: ten minutes.");
        // Once is not usual.
        let film: String =
            (0..).zip(["Remember: run!", "All", "of you."]).map(|(s, text)| cue(s, text)).collect();
        assert_eq!(of(&film, "a.srt").unwrap().text, "Remember: run!\nAll of you.");
    }

    #[test]
    fn captions_that_roll_are_read_once() {
        let vtt = "WEBVTT\nKind: captions\nLanguage: en\n\n00:00:00.080 --> 00:00:02.470 align:start position:0%\n \nhello<00:00:00.480><c> every</c><00:00:00.800><c> one</c>\n\n00:00:02.470 --> 00:00:02.480 align:start position:0%\nhello every one\n \n\n00:00:02.480 --> 00:00:04.000 align:start position:0%\nhello every one\nwelcome<00:00:03.000><c> back</c>\n\n00:00:04.000 --> 00:00:04.010 align:start position:0%\nwelcome back\n \n";
        let found = of(vtt, "a.vtt").unwrap();
        assert_eq!(
            parts(&found),
            [(80, 2_480, None, "hello every one"), (2_480, 4_010, None, "welcome back")]
        );
        let grows = "1\n00:00:01,000 --> 00:00:02,000\nWe\n\n2\n00:00:02,000 --> 00:00:03,000\nWe all\n\n3\n00:00:03,000 --> 00:00:04,000\nWe all live.\n";
        assert_eq!(of(grows, "a.srt").unwrap().text, "We all live.");
        let twice = "1\n00:00:01,000 --> 00:00:02,000\nNo.\n\n2\n00:00:02,000 --> 00:00:03,000\nNo.\n\n3\n00:00:03,000 --> 00:00:04,000\nNever.\n\n4\n00:00:04,000 --> 00:00:05,000\nEver.\n";
        assert_eq!(of(twice, "a.srt").unwrap().text, "No.\nNo.\nNever.\nEver.");
    }

    #[test]
    fn broken_cues_lose_nothing_but_themselves() {
        let srt = "1\n00:00:01,000 --> 00:00:02,000\none\n\nstill one\n\n2\n00:99999999999999999999:00 --> x\nno cue < {\n\n3\n3:4 --> 3:5\nthree";
        let found = of(srt, "a.srt").unwrap();
        assert!(found.text.contains("one still one") && found.text.ends_with("three"), "{}", found.text);
        assert_eq!(found.marks.len(), 2);
        assert!(matches!(of("no subtitles", "a.srt"), Err(Fault::Broken(_))));
        assert_eq!(of("WEBVTT\n", "a.vtt").unwrap().text, "");
        assert_eq!(
            of("1\n00:00:01,000 --> 00:00:02,000\nこんにちは\n世界", "a.srt").unwrap().text,
            "こんにちは世界"
        );
    }
}
