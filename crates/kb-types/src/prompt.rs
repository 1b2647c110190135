//! A request to a chat model, and its reply.

use serde::{Deserialize, Serialize};

/// What a chat model is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Instructions, which never contain text of a user.
    pub system: String,
    pub user: String,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speaker {
    User,
    Assistant,
}

/// A message of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub speaker: Speaker,
    pub text: String,
}

/// A dialogue that a chat model continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    /// Instructions.
    pub system: String,
    /// The first and the last one are the user's, and speakers alternate, as providers require.
    messages: Vec<Message>,
    /// The most tokens of the reply. None: the setting of the model.
    pub max_output_tokens: Option<u32>,
}

impl From<Prompt> for Dialogue {
    fn from(Prompt { system, user }: Prompt) -> Dialogue {
        Dialogue::new(system, Vec::new(), user, None)
    }
}

impl Dialogue {
    /// A dialogue that ends with `user`. Earlier messages before the first one of the user are left out, and
    /// consecutive messages of one speaker become one.
    pub fn new(
        system: String,
        earlier: Vec<Message>,
        user: String,
        max_output_tokens: Option<u32>,
    ) -> Dialogue {
        let mut messages: Vec<Message> = Vec::with_capacity(earlier.len() + 1);
        for message in earlier.into_iter().chain([Message { speaker: Speaker::User, text: user }]) {
            match messages.last_mut() {
                None if message.speaker == Speaker::Assistant => {}
                Some(last) if last.speaker == message.speaker => {
                    last.text.push_str("\n\n");
                    last.text.push_str(&message.text);
                }
                _ => messages.push(message),
            }
        }
        Dialogue { system, messages, max_output_tokens }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// All texts that are sent.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [self.system.as_str()].into_iter().chain(self.messages.iter().map(|message| message.text.as_str()))
    }
}

/// Why a chat model wrote no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The reply is complete.
    Stop,
    /// The reply has as many tokens as it may have.
    Length,
    /// The model or a filter of its provider refused to write more.
    ContentFilter,
    /// The model wants to call a tool.
    ToolCalls,
    Other,
}

crate::named!(FinishReason {
    Stop => "stop",
    Length => "length",
    ContentFilter => "content_filter",
    ToolCalls => "tool_calls",
    Other => "other",
});

/// The reply of a chat model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatReply {
    pub text: String,
    pub finish: FinishReason,
    /// The tokens that the provider counted, if it reports them. They include those that were read from its
    /// cache, and those of a reasoning that it does not show.
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_alternate_and_the_user_has_the_first_and_the_last_message() {
        let message = |(speaker, text): (Speaker, &str)| Message { speaker, text: text.into() };
        let earlier = |all: &[(Speaker, &str)]| all.iter().copied().map(message).collect::<Vec<_>>();
        use Speaker::{Assistant, User};
        for (given, expected) in [
            (vec![], vec![(User, "q")]),
            (vec![(Assistant, "a")], vec![(User, "q")]),
            (vec![(User, "1"), (User, "2")], vec![(User, "1\n\n2\n\nq")]),
            (
                vec![(Assistant, "0"), (User, "1"), (Assistant, "2"), (Assistant, "3")],
                vec![(User, "1"), (Assistant, "2\n\n3"), (User, "q")],
            ),
        ] {
            let dialogue = Dialogue::new("s".into(), earlier(&given), "q".into(), None);
            assert_eq!(dialogue.messages(), earlier(&expected), "{given:?}");
        }
        let prompt = Prompt { system: "s".into(), user: "q".into() };
        assert_eq!(Dialogue::from(prompt).texts().collect::<Vec<_>>(), ["s", "q"]);
    }
}
