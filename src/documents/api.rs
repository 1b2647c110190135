//! SQL functions over documents.

use crate::documents::new_document::{Content, GivenDocument};
use crate::pg::function_arguments::{elements, json, required, value};
use crate::pg::json::{Jsonb, JsonbMembers};
use crate::pg::report::reported;

use kb_search::bm25::compound;
use kb_types::error::Error;
use kb_types::json_reader::Fields;
use kb_types::row_states::PutStatus;
use kb_types::timestamp;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::Value;

#[pg_extern(volatile, parallel_unsafe)]
#[allow(clippy::too_many_arguments)]
fn put_document(
    kb_id: Option<&str>,
    external_id: Option<&str>,
    content: Option<&str>,
    metadata: default!(Option<Jsonb>, "NULL"),
    title: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "NULL"),
    uri: default!(Option<&str>, "NULL"),
    chunking: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let external_id = required("external_id", external_id)?;
        let content = required("content", content)?;
        let content = Content::Text(content.to_string());
        let described = Described { metadata, title, content_type, uri, chunking };
        put_one(kb_id, given(external_id, content, described)?)
    })
}

#[pg_extern(name = "put_document", volatile, parallel_unsafe)]
#[allow(clippy::too_many_arguments)]
fn put_document_bytes(
    kb_id: Option<&str>,
    external_id: Option<&str>,
    bytes: Option<&[u8]>,
    metadata: default!(Option<Jsonb>, "NULL"),
    title: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "NULL"),
    uri: default!(Option<&str>, "NULL"),
    chunking: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let external_id = required("external_id", external_id)?;
        let content = Content::Bytes(required("bytes", bytes)?.to_vec());
        let described = Described { metadata, title, content_type, uri, chunking };
        put_one(kb_id, given(external_id, content, described)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
#[allow(clippy::too_many_arguments)]
fn put_file(
    kb_id: Option<&str>,
    external_id: Option<&str>,
    bytes: Option<&[u8]>,
    filename: default!(Option<&str>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
    title: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "NULL"),
    uri: default!(Option<&str>, "NULL"),
    chunking: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let external_id = required("external_id", external_id)?;
        let bytes = required("bytes", bytes)?.to_vec();
        let name = filename.or(uri).unwrap_or(external_id).to_string();
        let described = Described { metadata, title, content_type, uri, chunking };
        put_one(kb_id, given(external_id, Content::File { bytes, name }, described)?)
    })
}

/// What is given of a document besides its content.
struct Described<'a> {
    metadata: Option<Jsonb>,
    title: Option<&'a str>,
    content_type: Option<&'a str>,
    uri: Option<&'a str>,
    chunking: Option<Jsonb>,
}

fn given(external_id: &str, content: Content, described: Described) -> Result<GivenDocument, Error> {
    let Described { metadata, title, content_type, uri, chunking } = described;
    Ok(GivenDocument {
        external_id: external_id.to_string(),
        content,
        metadata: json("metadata", metadata)?,
        title: title.map(str::to_string),
        content_type: content_type.map(str::to_string),
        uri: uri.map(str::to_string),
        chunking: value("chunking", chunking)?,
    })
}

fn put_one(kb_id: &str, given: GivenDocument) -> kb_types::error::Result<String> {
    let status = crate::documents::put_document::put_documents(kb_id, vec![given])?
        .first()
        .map_or(PutStatus::Skipped, |(_, put)| *put);
    Ok(status.name().to_string())
}

#[pg_extern(volatile, parallel_unsafe)]
fn put_documents(
    kb_id: Option<&str>,
    documents: Option<Vec<Option<JsonbMembers>>>,
) -> Result<TableIterator<'static, (name!(external_id, String), name!(status, String))>, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let documents = read_all(documents)?;
        let results = crate::documents::put_document::put_documents(kb_id, documents)?;
        Ok(TableIterator::new(results.into_iter().map(|(id, put)| (id, put.name().to_string()))))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn put_objects(
    kb_id: Option<&str>,
    objects: Option<Vec<Option<Jsonb>>>,
    fields: default!(Option<Jsonb>, "NULL"),
) -> Result<TableIterator<'static, (name!(external_id, String), name!(status, String))>, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let objects = elements("objects", required("objects", objects)?)?;
        let objects = objects.into_iter().map(|Jsonb(object)| object).collect();
        let fields = value("fields", fields)?.unwrap_or_default();
        let results = crate::documents::put_objects::put_objects(kb_id, objects, &fields)?;
        Ok(TableIterator::new(results.into_iter().map(|(id, put)| (id, put.name().to_string()))))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn sync_documents(
    kb_id: Option<&str>,
    documents: Option<Vec<Option<JsonbMembers>>>,
    scope: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (name!(added, i64), name!(updated, i64), name!(skipped, i64), name!(deleted, i64)),
    >,
    ErrorReport,
> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let scope = required("scope", scope)?;
        let documents = read_all(documents)?;
        let counts = crate::documents::sync_documents::sync_documents(kb_id, documents, scope)?;
        Ok(TableIterator::once((counts.added, counts.updated, counts.skipped, counts.deleted)))
    })
}

fn read_all(documents: Option<Vec<Option<JsonbMembers>>>) -> Result<Vec<GivenDocument>, Error> {
    let documents = elements("documents", required("documents", documents)?)?;
    documents.into_iter().enumerate().map(|(i, document)| read(i + 1, document)).collect()
}

/// An element of put_documents: {external_id, content, metadata, title, content_type, uri, chunking}.
fn read(number: usize, document: JsonbMembers) -> Result<GivenDocument, Error> {
    let name = format!("documents[{number}]");
    let wrong = |problem| Error::configuration(name.clone(), vec![problem]);
    // Metadata is stored as given; the other keys are parsed.
    let JsonbMembers { strings, mut rest } = document;
    let metadata = rest.take("metadata").filter(|metadata| metadata.as_str() != "null");
    let mut value = rest.value().map_err(|problem| wrong(format!("{name}: {problem}")))?;
    if let Value::Object(members) = &mut value {
        members.extend(strings.into_iter().map(|(key, text)| (key, Value::String(text))));
    }
    let mut fields = Fields::new(&name, &value);
    let (external_id, content) = (fields.required_text("external_id"), fields.required_text("content"));
    // The key is allowed, although its value has been taken out.
    fields.object("metadata");
    match &metadata {
        Some(metadata) if !metadata.is_object() => fields.problem("metadata", "must be a JSON object"),
        Some(metadata) => {
            metadata.check().err().iter().for_each(|problem| fields.problem("metadata", problem))
        }
        None => {}
    }
    let given = GivenDocument {
        external_id,
        content: Content::Text(content),
        metadata,
        title: fields.text("title"),
        content_type: fields.text("content_type"),
        uri: fields.text("uri"),
        chunking: fields.object("chunking"),
    };
    let problems = fields.finish();
    if problems.is_empty() { Ok(given) } else { Err(Error::configuration(name, problems)) }
}

#[pg_extern(volatile, parallel_unsafe)]
fn delete_document(kb_id: Option<&str>, external_id: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let external_id = required("external_id", external_id)?;
        let results = crate::documents::delete_document::delete_documents(kb_id, &[external_id.to_string()])?;
        Ok(results.iter().any(|(_, deleted)| *deleted))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn delete_documents(
    kb_id: Option<&str>,
    external_ids: Option<Vec<Option<String>>>,
) -> Result<TableIterator<'static, (name!(external_id, String), name!(status, String))>, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let external_ids = elements("external_ids", required("external_ids", external_ids)?)?;
        let results = crate::documents::delete_document::delete_documents(kb_id, &external_ids)?;
        Ok(TableIterator::new(
            results
                .into_iter()
                .map(|(id, deleted)| (id, if deleted { "deleted" } else { "not found" }.to_string())),
        ))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn delete_by_filter(kb_id: Option<&str>, filter: Option<Jsonb>) -> Result<i64, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        let Jsonb(filter) = required("filter", filter)?;
        crate::documents::delete_document::delete_by_filter(kb_id, &filter)
    })
}

/// The microseconds since 1970 of a text that is a timestamp, and NULL for any other text. For filters, in
/// SQL.
#[pg_extern(immutable, parallel_safe, strict)]
fn _microseconds(text: &str) -> Option<i64> {
    timestamp::microseconds(text)
}

#[pg_extern(volatile, parallel_unsafe)]
fn retry(kb_id: Option<&str>, external_id: default!(Option<&str>, "NULL")) -> Result<i64, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        crate::documents::retry::retry(kb_id, external_id)
    })
}

/// The form of a text in which quoted phrases are searched for. For search by words, in SQL.
#[pg_extern(immutable, parallel_safe, strict)]
fn _in_words(text: &str) -> String {
    compound::in_words(text)
}

/// The words of a text, in the form of kb.chunks.terms. For the upgrade script.
#[pg_extern(stable, strict, parallel_safe)]
fn _terms(content: &str, language: &str) -> Result<Vec<u8>, ErrorReport> {
    reported(|| crate::keyword::terms::terms(content, language))
}

#[pg_extern(stable, parallel_safe)]
fn chunk(
    text: Option<&str>,
    chunking: default!(Option<Jsonb>, "'{}'"),
    embedder: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "'text/plain'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(ordinal, i32),
            name!(content, String),
            name!(token_count, i32),
            name!(start_char, i32),
            name!(end_char, i32),
            name!(headings, Vec<String>),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let text = required("text", text)?;
        let chunking = required("chunking", value("chunking", chunking)?)?;
        let content_type = required("content_type", content_type)?;
        let chunks = crate::documents::chunk::chunk(text, &chunking, embedder, content_type)?;
        Ok(TableIterator::new(chunks.into_iter().enumerate().map(|(i, chunk)| {
            (
                i as i32,
                chunk.content,
                chunk.token_count as i32,
                chunk.span.start as i32,
                chunk.span.end as i32,
                chunk.locator.headings,
            )
        })))
    })
}

#[pg_extern(stable, parallel_safe)]
fn extract_text(
    value: Option<Jsonb>,
    fields: default!(Option<Jsonb>, "NULL"),
) -> Result<Option<String>, ErrorReport> {
    reported(|| {
        let fields = crate::pg::function_arguments::value("fields", fields)?.unwrap_or_default();
        let text = value
            .map(|Jsonb(json)| crate::documents::extract_text::extract_text(&json, &fields))
            .transpose()?;
        Ok(text)
    })
}
