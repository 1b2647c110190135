//! The syntax in which the words of a question are read.

use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};

/// Whether quotation marks and minus signs in a question are operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syntax {
    /// They are text, as in questions that people and agents write.
    Plain,
    /// They are operators, as in web search: "a phrase" must occur, and -this must not.
    Web,
    /// Replaces `Web` where no chunk contains the phrases, so that only exclusions apply. Users cannot ask
    /// for it.
    #[serde(rename = "web without phrases")]
    WithoutPhrases,
}

impl Syntax {
    /// Reads the setting, which keeps its value where none is given.
    pub fn read(syntax: &mut Option<Syntax>, fields: &mut Fields) {
        let Some(word) = fields.text("syntax") else { return };
        match word.as_str() {
            "plain" => *syntax = Some(Syntax::Plain),
            "web" => *syntax = Some(Syntax::Web),
            _ => fields.problem("syntax", format_args!("\"{word}\" is not one of plain, web")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Retrieval;
    use serde_json::json;

    #[test]
    fn users_can_ask_only_for_plain_and_web() {
        for (word, expected) in [("plain", Syntax::Plain), ("web", Syntax::Web)] {
            let retrieval = Retrieval::parse(&json!({ "syntax": word })).unwrap();
            assert_eq!((retrieval.syntax, &retrieval.to_json()["syntax"]), (Some(expected), &json!(word)));
        }
        assert_eq!(Retrieval::default().to_json().get("syntax"), None);
        for word in ["lucene", "web without phrases", ""] {
            let problems = Retrieval::parse(&json!({ "syntax": word })).unwrap_err();
            assert!(problems[0].contains("plain, web"), "{problems:?}");
        }
    }
}
