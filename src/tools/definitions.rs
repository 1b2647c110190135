//! The tools and their schemas. Pure.

use super::options::ToolOptions;
use kb_types::error::{Error, Result};
use kb_types::named;
use kb_types::named::Named;
use kb_types::{Json, id, sizes};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    MemoryStore,
    MemorySearch,
    FileSearch,
    SearchSemanticKnowledge,
}

named!(Tool {
    MemoryStore => "memory_store",
    MemorySearch => "memory_search",
    FileSearch => "file_search",
    SearchSemanticKnowledge => "search_semantic_knowledge",
});

/// How tools are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// As in the array `tools` of a request to OpenAI, or to whoever has the same API.
    OpenAi,
    /// As in the answer to the request tools/list of the Model Context Protocol.
    Mcp,
}

named!(Format { OpenAi => "openai", Mcp => "mcp" });

impl Tool {
    /// Whether the options name what it works on.
    pub fn is_available(self, options: &ToolOptions) -> bool {
        match self {
            Tool::MemoryStore | Tool::MemorySearch => options.memory.is_some(),
            Tool::FileSearch | Tool::SearchSemanticKnowledge => !options.knowledge_bases.is_empty(),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Tool::MemoryStore => {
                "Stores a fact in long-term memory, so that later conversations can find it. If an id is given, the memory \
                 with this id is replaced."
            }
            Tool::MemorySearch => {
                "Searches long-term memory for facts that were stored before, and returns the most relevant first."
            }
            Tool::FileSearch => "Search uploaded files for relevant information",
            Tool::SearchSemanticKnowledge => {
                "Queries the CMS database using natural language to retrieve highly relevant chunks of published knowledge."
            }
        }
    }

    /// The JSON Schema of its arguments.
    fn schema(self, allowed: &[String]) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        let (properties, required) = match self {
            Tool::MemoryStore => {
                let id = "Optional stable ID for upsert; if provided, any existing memory with this ID is replaced";
                let properties = json!({
                    "text": text("The text content to store in memory"),
                    "metadata": strings("Optional key-value metadata to attach", allowed),
                    "id": text(id),
                });
                (properties, "text")
            }
            Tool::MemorySearch => {
                let properties = json!({
                    "query": text("The search query to find relevant memories"),
                    "limit": {"type": "integer", "description": "Maximum number of results to return (default 5)"},
                    "filter": strings("Optional metadata filter; only memories with all of these values are returned", allowed),
                });
                (properties, "query")
            }
            Tool::FileSearch => {
                (json!({"query": text("The search query to find relevant passages")}), "query")
            }
            Tool::SearchSemanticKnowledge => {
                (json!({"query": text("The question in natural language")}), "query")
            }
        };
        json!({"type": "object", "properties": properties, "required": [required], "additionalProperties": false})
    }

    fn definition(self, format: Format, allowed: &[String]) -> Value {
        let (name, description, schema) = (self.name(), self.description(), self.schema(allowed));
        match format {
            Format::OpenAi => {
                json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
            }
            Format::Mcp => json!({"name": name, "description": description, "inputSchema": schema}),
        }
    }
}

/// An object whose values are strings.
fn strings(description: &str, allowed: &[String]) -> Value {
    if allowed.is_empty() {
        return json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}});
    }
    let properties: serde_json::Map<String, Value> =
        allowed.iter().map(|key| (key.clone(), json!({"type": "string"}))).collect();
    json!({"type": "object", "description": description, "properties": properties, "additionalProperties": false})
}

/// The definitions of all tools, or of those that are available under these options, as an array.
pub fn tools(format: &str, options: Option<&ToolOptions>) -> Result<Json> {
    let format = Format::one_of(sizes::cut(format, id::MAX_BYTES))
        .map_err(|problem| Error::Argument { argument: "format", problem })?;
    let allowed = options.map_or(&[][..], |options| &options.allowed_metadata_keys);
    let is_listed = |tool: &Tool| options.is_none_or(|options| tool.is_available(options));
    let tools = Tool::NAMES.iter().map(|(_, tool)| *tool).filter(is_listed);
    let definitions: Vec<Value> = tools.map(|tool| tool.definition(format, allowed)).collect();
    Ok(Json::new(Value::Array(definitions).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(format: &str, options: Option<Value>) -> Vec<Value> {
        let options = options.map(|options| ToolOptions::parse(&options).unwrap());
        serde_json::from_str(tools(format, options.as_ref()).unwrap().as_str()).unwrap()
    }

    #[test]
    fn tools_are_described_in_each_format() {
        let openai = listed("openai", None);
        let mcp = listed("mcp", None);
        assert_eq!((openai.len(), mcp.len()), (4, 4));
        for (openai, mcp) in openai.iter().zip(&mcp) {
            assert_eq!(openai["type"], "function");
            assert_eq!(openai["function"]["name"], mcp["name"]);
            assert_eq!(openai["function"]["parameters"], mcp["inputSchema"]);
            assert_eq!(mcp["inputSchema"]["type"], "object");
            let required = mcp["inputSchema"]["required"][0].as_str().unwrap();
            assert!(mcp["inputSchema"]["properties"][required].is_object(), "{mcp}");
        }
        assert!(tools("yaml", None).is_err());
    }

    #[test]
    fn only_tools_that_the_options_serve_are_listed_with_the_keys_that_are_allowed() {
        let names = |options: Value| -> Vec<String> {
            listed("mcp", Some(options))
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_string())
                .collect()
        };
        assert_eq!(names(json!({"memory": "m"})), ["memory_store", "memory_search"]);
        assert_eq!(names(json!({"knowledge_bases": ["k"]})), ["file_search", "search_semantic_knowledge"]);
        assert_eq!(names(json!({})).len(), 0);
        let [store, search] =
            &listed("mcp", Some(json!({"memory": "m", "allowed_metadata_keys": ["a"]})))[..]
        else {
            panic!("two tools")
        };
        let metadata = &store["inputSchema"]["properties"]["metadata"];
        assert_eq!(metadata["properties"], json!({"a": {"type": "string"}}));
        assert_eq!(metadata["additionalProperties"], false);
        assert_eq!(search["inputSchema"]["properties"]["filter"]["properties"], metadata["properties"]);
    }
}
