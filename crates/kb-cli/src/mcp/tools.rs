//! The tools: those of kb.tools, and kb_query, kb_context, kb_answer and kb_put.

use super::backend::Statement;
use super::scopes::Scope;
use super::{Options, sql};
use serde_json::{Map, Value, json};

/// The scope that a tool needs; None if there is no such tool.
pub fn scope(tool: &str) -> Option<Scope> {
    match tool {
        "search_semantic_knowledge" | "file_search" | "kb_query" | "kb_context" => Some(Scope::Search),
        "memory_store" | "memory_search" => Some(Scope::Memories),
        "kb_answer" => Some(Scope::Answers),
        "kb_put" => Some(Scope::Documents),
        _ => None,
    }
}

fn writes(tool: &str) -> bool {
    matches!(tool, "memory_store" | "kb_put")
}

/// The tools of `found`, which is what sql::TOOLS returned, for a caller with these scopes.
pub fn listed(found: &Value, scopes: &str) -> Vec<Value> {
    let may_write = found["may_write"].as_bool().unwrap_or_default();
    let has_llm = found["has_llm"].as_bool().unwrap_or_default();
    let knowledge_bases = found["knowledge_bases"].as_array().cloned().unwrap_or_default();
    let mut tools = found["tools"].as_array().cloned().unwrap_or_default();
    if !knowledge_bases.is_empty() {
        tools.extend(own(&knowledge_bases));
    }
    tools.retain(|tool| {
        let name = tool["name"].as_str().unwrap_or_default();
        scope(name).is_some_and(|scope| scope.is_in(scopes))
            && (may_write || !writes(name))
            && (has_llm || name != "kb_answer")
    });
    for tool in &mut tools {
        let name = tool["name"].as_str().unwrap_or_default();
        tool["annotations"] = json!({
            "readOnlyHint": !writes(name), "destructiveHint": name == "kb_put", "openWorldHint": false,
        });
    }
    tools
}

/// The definitions of kb's own tools.
fn own(knowledge_bases: &[Value]) -> [Value; 4] {
    let kb_id = json!({"type": "string", "enum": knowledge_bases, "description": "The knowledge base."});
    let text = |description: &str| json!({"type": "string", "description": description});
    let filter = json!({
        "type": "object",
        "description": "A condition on the metadata of documents, such as {\"language\": \"en\"}.",
    });
    let tool = |name: &str, description: &str, properties: Value, required: Value| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
        })
    };
    [
        tool(
            "kb_query",
            "Finds the passages of a knowledge base that answer a question, best first, with their documents, \
             scores and metadata.",
            json!({
                "kb_id": kb_id, "query": text("The question."),
                "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "The most passages."},
                "min_score": {"type": "number", "description": "The least score of a passage."},
                "filter": filter,
            }),
            json!(["kb_id", "query"]),
        ),
        tool(
            "kb_context",
            "Returns the passages of a knowledge base that answer a question as one text with numbered blocks, \
             which can be cited.",
            json!({
                "kb_id": kb_id, "query": text("The question."),
                "max_tokens": {"type": "integer", "minimum": 50, "description": "The most tokens of the text."},
                "filter": filter,
            }),
            json!(["kb_id", "query"]),
        ),
        tool(
            "kb_answer",
            "Has a chat model answer a question from the passages of a knowledge base, with citations.",
            json!({"kb_id": kb_id, "question": text("The question.")}),
            json!(["kb_id", "question"]),
        ),
        tool(
            "kb_put",
            "Stores a document in a knowledge base. A document with the same external_id is replaced. It can be \
             found a little later, when it has been processed.",
            json!({
                "kb_id": kb_id, "external_id": text("The name of the document, such as a path."),
                "content": text("The text of the document: plain text, Markdown or HTML."),
                "title": text("The title."),
                "metadata": {"type": "object", "description": "Properties of the document."},
            }),
            json!(["kb_id", "external_id", "content"]),
        ),
    ]
}

/// A call: its statement with the parameters.
#[derive(Debug)]
pub struct Call {
    scope: Scope,
    sql: &'static str,
    parameters: Vec<Option<String>>,
}

impl Call {
    pub fn statement(&self) -> Statement<'_> {
        Statement { scope: Some(self.scope), sql: self.sql, parameters: &self.parameters }
    }
}

/// The statement of a call. The error says what is wrong with the arguments, for the model.
pub fn call(options: &Options, tool: &str, arguments: Map<String, Value>) -> Result<Call, String> {
    let Some(scope) = scope(tool) else {
        return Err(format!("there is no tool {tool}"));
    };
    let mut given = Arguments { values: arguments, problems: Vec::new() };
    let (sql, parameters) = match tool {
        "kb_query" => {
            let parameters = vec![
                given.knowledge_base(options),
                given.text("query", true),
                given.number("top_k"),
                given.number("min_score"),
                given.object("filter"),
            ];
            (sql::QUERY, parameters)
        }
        "kb_context" => {
            let parameters = vec![
                given.knowledge_base(options),
                given.text("query", true),
                given.number("max_tokens"),
                given.object("filter"),
            ];
            (sql::CONTEXT, parameters)
        }
        "kb_answer" => {
            let parameters =
                vec![given.knowledge_base(options), given.text("question", true), options.llm.clone()];
            (sql::ANSWER, parameters)
        }
        "kb_put" => {
            let parameters = vec![
                given.knowledge_base(options),
                given.text("external_id", true),
                given.text("content", true),
                given.text("title", false),
                given.object("metadata"),
            ];
            (sql::PUT, parameters)
        }
        // kb.call_tool reads the arguments itself.
        _ => {
            let arguments = Value::from(std::mem::take(&mut given.values)).to_string();
            (sql::CALL_TOOL, vec![Some(options.json()), Some(tool.to_string()), Some(arguments)])
        }
    };
    given.problems.extend(given.values.keys().map(|name| format!("{name} is not an argument of this tool")));
    if given.problems.is_empty() {
        Ok(Call { scope, sql, parameters })
    } else {
        Err(format!("{tool}: {}", given.problems.join("; ")))
    }
}

/// The arguments that a model wrote. Each is taken once; what is left is none.
struct Arguments {
    values: Map<String, Value>,
    problems: Vec<String>,
}

impl Arguments {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str, is_required: bool) -> Option<String> {
        match self.take(name) {
            Some(Value::String(text)) if !text.contains('\0') && (!text.is_empty() || !is_required) => {
                Some(text)
            }
            None if !is_required => None,
            _ => {
                self.problems.push(format!("{name} must be a text that is not empty"));
                None
            }
        }
    }

    fn number(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            Some(Value::Number(number)) => Some(number.to_string()),
            None => None,
            _ => {
                self.problems.push(format!("{name} must be a number"));
                None
            }
        }
    }

    fn object(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            Some(object @ Value::Object(_)) => Some(object.to_string()),
            None => None,
            _ => {
                self.problems.push(format!("{name} must be an object"));
                None
            }
        }
    }

    /// The knowledge base, which must be one of those that the server was started for.
    fn knowledge_base(&mut self, options: &Options) -> Option<String> {
        let kb_id = match (self.values.contains_key("kb_id"), options.knowledge_bases.as_slice()) {
            (false, [only]) => Some(only.clone()),
            _ => self.text("kb_id", true),
        };
        if let Some(kb_id) = &kb_id
            && !options.admits(kb_id)
        {
            self.problems.push(format!("there is no knowledge base {kb_id}"));
        }
        kb_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(knowledge_bases: &[&str]) -> Options {
        Options {
            knowledge_bases: knowledge_bases.iter().map(ToString::to_string).collect(),
            ..Options::default()
        }
    }

    fn found() -> Value {
        let tools = ["memory_store", "memory_search", "file_search", "search_semantic_knowledge"];
        let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect();
        json!({"knowledge_bases": ["a"], "tools": tools, "has_llm": true, "may_write": true})
    }

    fn names(found: &Value, scopes: &str) -> Vec<String> {
        listed(found, scopes).iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
    }

    #[test]
    fn a_caller_sees_the_tools_of_its_scopes() {
        assert_eq!(names(&found(), "").len(), 8);
        assert_eq!(names(&found(), "memories"), ["memory_store", "memory_search"]);
        assert_eq!(names(&found(), "documents answers"), ["kb_answer", "kb_put"]);
        assert_eq!(names(&found(), "nix"), [""; 0]);
    }

    #[test]
    fn a_reader_sees_no_tool_that_writes() {
        let mut found = found();
        found["may_write"] = false.into();
        found["has_llm"] = false.into();
        let names = names(&found, "");
        for absent in ["memory_store", "kb_put", "kb_answer"] {
            assert!(!names.iter().any(|name| name == absent), "{absent}");
        }
        assert!(listed(&found, "").iter().all(|tool| tool["annotations"]["readOnlyHint"] == true));
    }

    #[test]
    fn a_call_reaches_no_other_knowledge_base() {
        let call = |kb_id: Value| {
            let arguments = json!({"kb_id": kb_id, "query": "x"});
            super::call(&options(&["a", "b"]), "kb_query", arguments.as_object().unwrap().clone())
        };
        assert_eq!(call("a".into()).unwrap().parameters[0].as_deref(), Some("a"));
        for other in ["c".into(), Value::Null, "".into(), json!(["a"]), "a\0".into()] {
            assert!(call(other).is_err());
        }
    }

    #[test]
    fn all_that_is_wrong_with_arguments_is_said_at_once() {
        let arguments = json!({"query": 1, "top_k": "3", "filter": [], "limit": 5});
        let problem = call(&options(&["a"]), "kb_query", arguments.as_object().unwrap().clone()).unwrap_err();
        for name in ["query must", "top_k must", "filter must", "limit is not an argument"] {
            assert!(problem.contains(name), "{name}: {problem}");
        }
        assert!(call(&options(&["a"]), "drop_table", Map::new()).unwrap_err().contains("no tool"));
    }
}
