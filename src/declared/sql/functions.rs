//! Calls of kb's SQL functions, as whoever calls kb.apply.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow};
use crate::pg::statement_arguments::Arguments;
use kb_types::error::Result;
use serde_json::{Map, Value};

/// Calls a function of kb with these arguments, without those that are null.
pub fn call(function: &str, given: &[(&str, &Value)]) -> Result<()> {
    let texts: Vec<(&str, String)> = given
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (*name, value.as_str().map_or_else(|| value.to_string(), str::to_string)))
        .collect();
    let mut arguments = Arguments::default();
    let named: Vec<String> = texts
        .iter()
        .map(|(name, text)| format!("{name} => {}::{}", arguments.add(Arg::Text(text)), type_of(name)))
        .collect();
    let sql = format!("SELECT kb.{function}({})", named.join(", "));
    spi::execute(&sql, &arguments.all())?;
    Ok(())
}

/// Attaches a table, which is named with its schema, to a knowledge base.
pub fn attach_table(kb_id: &str, table: &str, given: &Map<String, Value>) -> Result<()> {
    let json = |name: &str| given.get(name).cloned().unwrap_or_default();
    let text = |name: &str| json(name).as_str().map(str::to_string);
    let texts = |name: &str| match json(name) {
        Value::String(one) => vec![one],
        list => list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect(),
    };
    let is_list = json("content").is_array();
    let [published_when, tenant, title, uri, content_type, adopt] =
        ["published_when", "tenant", "title", "uri", "content_type", "adopt"].map(text);
    spi::execute(
        "SELECT kb.attach_table($1, $2::regclass, CASE WHEN $3 THEN $4::text[]::text ELSE $4[1] END,
             published_when => $5, metadata => $6::text[], tenant => $7, title => $8, uri => $9, content_type => $10,
             replicated => $11, json_fields => NULLIF($12, 'null'), adopt => $13)",
        &[
            Arg::Text(kb_id),
            Arg::Text(table),
            Arg::Bool(is_list),
            Arg::Texts(&texts("content")),
            Arg::TextOrNull(published_when.as_deref()),
            Arg::Texts(&texts("metadata")),
            Arg::TextOrNull(tenant.as_deref()),
            Arg::TextOrNull(title.as_deref()),
            Arg::TextOrNull(uri.as_deref()),
            Arg::TextOrNull(content_type.as_deref()),
            Arg::Bool(json("replicated") == Value::Bool(true)),
            Arg::Json(&json("json_fields")),
            Arg::TextOrNull(adopt.as_deref()),
        ],
    )?;
    Ok(())
}

/// What became of objects.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PutObjects {
    pub added: i64,
    pub updated: i64,
    pub skipped: i64,
    pub deleted: i64,
}

from_row! {
    struct Put {
        external_id: String,
        status: String,
    }
}

/// Makes these objects the documents of a knowledge base, and deletes its other documents.
pub fn put_objects(kb_id: &str, objects: &Value) -> Result<PutObjects> {
    let put = spi::write(
        "SELECT external_id, status FROM kb.put_objects($1, ARRAY(
             SELECT e.object FROM pg_catalog.jsonb_array_elements($2) WITH ORDINALITY AS e (object, place) ORDER BY e.place))",
        &[Arg::Text(kb_id), Arg::Json(objects)],
        Put::from_row,
    )?;
    let of = |status: &str| put.iter().filter(|put| put.status == status).count() as i64;
    let kept: Vec<String> = put.iter().map(|put| put.external_id.clone()).collect();
    let deleted = spi::write_value(
        "SELECT pg_catalog.count(*) FROM kb.delete_documents($1, ARRAY(
             SELECT d.external_id FROM kb.documents d
             WHERE d.kb_no = (SELECT k.kb_no FROM kb.knowledge_bases k
                              WHERE k.id = $1 AND k.tenant_id = kb.current_tenant())
             EXCEPT SELECT u.external_id FROM pg_catalog.unnest($2::text[]) AS u (external_id)))
         WHERE status = 'deleted'",
        &[Arg::Text(kb_id), Arg::Texts(&kept)],
    )?;
    Ok(PutObjects { added: of("added"), updated: of("updated"), skipped: of("skipped"), deleted })
}

/// The type of an argument, by its name.
fn type_of(argument: &str) -> &'static str {
    match argument {
        "dimension" | "top_k" | "max_tokens" => "integer",
        "min_score" => "double precision",
        "replace" => "boolean",
        "relation" => "regclass",
        "bytes" | "documents" | "document_bytes" | "knowledge_bases" | "tokens_per_day"
        | "attached_tables" | "metadata_indexes" | "memory_entries" => "bigint",
        "config" | "chunking" | "preprocess" | "retrieval" | "metadata" | "settings" | "filter" => "jsonb",
        _ => "text",
    }
}
