//! kb.create_conversation, kb.alter_conversation and kb.drop_conversation.

use crate::chat_requests::requests;
use crate::conversations::sql::conversations::{self, Properties};
use crate::memory::stores;
use crate::models::services;
use crate::pg::role::as_owner;
use crate::tenants::bindings;
use kb_text::tokenizer::is_tiktoken;
use kb_types::conversation::{CONVERSATION_PREFIX, ConversationSettings, TURN_PREFIX};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::{Json, ServiceKind, id, sizes};
use serde_json::{Value, json};
use uuid::Uuid;

/// Requested properties. None stands for the default (on creation) or for no change.
#[derive(Debug, Default)]
pub struct WantedConversation {
    pub title: Option<String>,
    pub settings: Option<Value>,
    pub metadata: Option<Json>,
}

/// Creates a conversation of the session's tenant, without turns. Returns its id, which is new if none is
/// given.
pub fn create_conversation(id: Option<&str>, wanted: WantedConversation) -> Result<String> {
    let tenant = bindings::current()?;
    let id = match id {
        Some(id) => id.to_string(),
        None => format!("{CONVERSATION_PREFIX}{}", Uuid::now_v7().simple()),
    };
    let settings = wanted.settings.clone().unwrap_or_else(|| json!({}));
    let wanted = WantedConversation { settings: Some(settings), ..wanted };
    let settings = check(&id, &wanted)?.unwrap_or_default();
    let properties =
        Properties { title: wanted.title.as_deref(), settings: None, metadata: wanted.metadata.as_ref() };
    if !as_owner(|| conversations::insert(&tenant, &id, &settings, &properties))? {
        return Err(Error::AlreadyExists { what: ObjectKind::Conversation, id });
    }
    Ok(id)
}

/// Replaces properties of a conversation of the session's tenant.
pub fn alter_conversation(id: &str, wanted: WantedConversation) -> Result<()> {
    let tenant = bindings::current()?;
    let settings = check(id, &wanted)?;
    let properties = Properties {
        title: wanted.title.as_deref(),
        settings: settings.as_ref(),
        metadata: wanted.metadata.as_ref(),
    };
    as_owner(|| {
        conversations::update(&tenant, id, &properties)?;
        // What failed under the former settings is tried again.
        if settings.is_some() { requests::renew(&tenant, id) } else { Ok(()) }
    })
}

/// Drops a conversation of the session's tenant with its turns.
pub fn drop_conversation(id: &str) -> Result<()> {
    let tenant = bindings::current()?;
    as_owner(|| conversations::delete(&tenant, id))
}

/// Checks what is requested and reports all problems at once. Returns the settings with all defaults.
fn check(id: &str, wanted: &WantedConversation) -> Result<Option<Value>> {
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    if id.starts_with(TURN_PREFIX) {
        problems.push(format!("id: must not begin with {TURN_PREFIX}, as the ids of turns do"));
    }
    let settings = wanted.settings.as_ref().map(ConversationSettings::parse).transpose();
    let settings = settings.map_err(|found| problems.extend(found)).ok().flatten();
    let tokenizer = wanted.settings.as_ref().and_then(|settings| settings.get("tokenizer")?.as_str());
    if let Some(tokenizer) = tokenizer
        && !is_tiktoken(tokenizer)
    {
        problems.push(format!(
            "settings.tokenizer: \"{}\" is not an OpenAI model or encoding that tiktoken knows",
            sizes::cut(tokenizer, id::MAX_BYTES)
        ));
    }
    let llm = settings.as_ref().and_then(|settings| settings.summary.llm.as_ref());
    if let Some(llm) = llm
        && services::find(ServiceKind::Llm, llm)?.is_none()
    {
        let llm = sizes::cut(llm, id::MAX_BYTES);
        problems.push(format!("settings.summary.llm: llm \"{llm}\" does not exist"));
    }
    if let Some(memory) = settings.as_ref().and_then(|settings| settings.memory.as_ref())
        && stores::settings_of(&bindings::current()?, memory)?.is_none()
    {
        let memory = sizes::cut(memory, id::MAX_BYTES);
        problems.push(format!("settings.memory: memory \"{memory}\" does not exist"));
    }
    if let Some(metadata) = &wanted.metadata
        && !metadata.is_object()
    {
        problems.push("metadata: must be a JSON object".into());
    }
    let length = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_str().len());
    for (field, size, most) in [
        ("title", wanted.title.as_ref().map_or(0, String::len), sizes::TITLE),
        ("metadata", length(&wanted.metadata), sizes::METADATA),
    ] {
        problems.extend(sizes::problem(size, most).map(|problem| format!("{field}: {problem}")));
    }
    match problems.is_empty() {
        true => Ok(settings.map(|settings| settings.to_json())),
        false => {
            let id = sizes::cut(id, id::MAX_BYTES);
            Err(Error::configuration(format!("conversation \"{id}\""), problems))
        }
    }
}
