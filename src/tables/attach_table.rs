//! kb.attach_table: makes a table's rows documents, now and with every change.

use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::models::services;
use crate::pg::condition::Condition;
use crate::pg::role::{acting_roles, as_owner, as_role_of_name};
use crate::pg::{report, setting, trigger, wake};
use crate::tables::row_presence::{RowPresence, presence};
use crate::tables::source_tables;
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::row_documents;
use crate::tables::sql::row_documents::RowDocument;
use crate::tables::sql::sources::table;
use crate::tables::sql::sources::table::{MemberTable, UserTable};
use crate::tables::sql::sources::{PRINTED, Source, catalog, rows};
use crate::tenants::quota;
use crate::tenants::shares;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::json_fields::RowJsonFields;
use kb_types::quota::Thing;
use kb_types::sizes;
use kb_types::template::Template;
use kb_types::tenancy::SHARED;
use kb_types::{Adopt, Embedder, RowContent, RowSource};
use serde_json::Value;

/// The arguments of a caller.
#[derive(Debug)]
pub struct WantedTable {
    /// A template, or names of columns.
    pub content: String,
    /// Which values of JSON count as text: {include, exclude, type_column, types}.
    pub json_fields: Value,
    pub published_when: Option<String>,
    pub metadata: Vec<String>,
    pub tenant: Option<String>,
    pub title: Option<String>,
    pub uri: Option<String>,
    pub content_type: Option<String>,
    pub replicated: bool,
    /// A column of vectors that the embedder's model has made.
    pub adopt: Option<String>,
}

/// The advice for a table whose triggers would not report all changes.
const RELATIVES: &str = "A statement fires only the triggers of the table that it names, so changes would be missed. Attach the partitioned table, or a table that neither inherits nor is inherited from.";

/// The number of rows that are compared together after a condition changed.
const BATCH: usize = 1000;

/// Attaches a table, or changes how an attached one is read. Returns the number of the source.
pub fn attach_table(kb_id: &str, relation: u32, wanted: WantedTable) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let table = table::find(relation)?
        .ok_or_else(|| Error::NotFound { what: ObjectKind::Table, id: relation.to_string() })?;
    check_table(&table)?;
    let embedder = wanted.adopt.is_some().then(|| services::embedder(&kb.embedder)).transpose()?;
    if let Some(problem) = kb.retrieval.key_problem(wanted.metadata.iter().map(String::as_str)) {
        return Err(Error::Argument { argument: "metadata", problem });
    }
    let config = check_config(&table, wanted, embedder.as_ref())?;
    if config.tenant.is_some() {
        check_readers(&kb)?;
    }
    let (attached_by, attached_by_oids) = acting_roles();
    let mut source = Source {
        source_no: 0,
        kb_no: kb.kb_no,
        kb_id: kb.id.clone(),
        tenant_id: kb.tenant_id.clone(),
        relation,
        relation_name: table.name.clone(),
        role_name: table.owner.clone(),
        key: table.key.clone(),
        config,
        backfill: None,
        is_partitioned: table.is_partitioned,
        partitions: Vec::new(),
        attached_at: 0,
        attached_by,
        attached_by_oids,
    };
    // The worker will read the table in this way, so a missing right is reported now.
    rows::check(&source)?;
    as_owner(|| {
        knowledge_bases::lock(&kb)?;
        let before = source_tables::of_knowledge_base(kb.kb_no, relation)?;
        let is_another = !before.as_ref().map_or(Ok(true), |before| table::is_of(before, relation))?;
        if before.is_some() {
            source_tables::must_see_all("kb.attach_table")?;
        }
        if before.is_none() {
            quota::check(&kb.tenant_id, Thing::AttachedTables)?;
        }
        source.source_no = before.as_ref().map_or(0, |before| before.source_no);
        source.source_no = quota::within(&kb.tenant_id, || catalog::put(&source))?;
        before.as_ref().map_or(Ok(()), source_tables::drop_triggers)?;
        create_triggers(&source)?;
        match before {
            // The documents belong to rows of an earlier table of this name, which were dropped with it.
            Some(_) if is_another => changes::append(source.source_no, What::Truncated, &[], &[])?,
            Some(before) => hide_what_is_no_more(&before, &source)?,
            None => {}
        }
        wake::at_commit(kb.kb_no);
        Ok(source.source_no)
    })
}

/// Checks that the tenants that a column names can query the knowledge base to which their rows' documents
/// go. Only tenant '' sees a knowledge base of tenant ''; a tenant that has a name may share its knowledge
/// base later.
fn check_readers(kb: &KnowledgeBase) -> Result<()> {
    if kb.tenant_id == SHARED || shares::any(kb.kb_no)? {
        return Ok(());
    }
    let problem = format!(
        "other tenants could not read their rows in knowledge base \"{}\", which belongs to tenant \"{}\"",
        kb.id, kb.tenant_id
    );
    if kb.tenant_id.is_empty() {
        return Err(Error::State {
            problem,
            hint: format!(
                "Create it for all tenants (SET kb.tenant = '{SHARED}', then kb.create_knowledge_base), ask a member of \
                 kb_admin to move it there (kb.move_knowledge_base), or share it with these tenants first (kb.share)."
            ),
        });
    }
    report::notice(&format!("{problem}, until it is shared with them (kb.share)"));
    Ok(())
}

/// Creates the triggers of a source.
fn create_triggers(source: &Source) -> Result<()> {
    let create = |member: &MemberTable| table::create_triggers(source, member);
    // The triggers of the table itself come first: creating them locks the table, so that it gets no further
    // partitions.
    table::members(source.relation)?.first().map_or(Ok(()), create)?;
    let members = table::members(source.relation)?;
    members.iter().skip(1).try_for_each(create)?;
    let partitions: Vec<i64> = members.iter().skip(1).map(MemberTable::oid).collect();
    catalog::set_partitions(source.source_no, &partitions)?;
    // ALTER TABLE makes kb follow new partitions, of which there must be none by now.
    members.iter().try_for_each(|member| table::set_firing(source, member))
}

/// Hides documents that may belong to rows from which they are no longer made. They leave the answers with
/// this commit.
fn hide_what_is_no_more(before: &Source, source: &Source) -> Result<()> {
    if before.key != source.key || before.config.tenant != source.config.tenant {
        return changes::append(source.source_no, What::Truncated, &[], &[]);
    }
    if before.config.published_when == source.config.published_when && before.role_name == source.role_name {
        return Ok(());
    }
    let mut after = 0;
    loop {
        let documents = row_documents::after(source.source_no, after, BATCH)?;
        let Some(last) = documents.last() else { return Ok(()) };
        after = last.document_id;
        let names: Vec<_> = documents.iter().map(RowDocument::name).collect();
        let RowPresence { absent, unreadable } = presence(source, &names)?;
        let (tenants, keys): (Vec<String>, Vec<String>) = absent
            .into_iter()
            .chain(unreadable)
            .map(|place| (documents[place].tenant_id.clone(), documents[place].external_id.clone()))
            .unzip();
        if !keys.is_empty() {
            changes::append(source.source_no, What::Gone, &tenants, &keys)?;
        }
    }
}

fn check_table(table: &UserTable) -> Result<()> {
    let refuse = |problem: String, hint: &str| Err(Error::State { problem, hint: hint.into() });
    let name = &table.name;
    match table.kind.as_str() {
        "r" | "p" => {}
        "v" => {
            return refuse(
                format!("{name} is a view"),
                "Attach the tables that it reads; published_when and a template can express what the view does.",
            );
        }
        "m" => {
            return refuse(
                format!("{name} is a materialized view"),
                "Attach the tables that it reads, or a table that is filled from it.",
            );
        }
        "f" => {
            return refuse(
                format!("{name} is a foreign table"),
                "Changes of a foreign table cannot be detected. Copy it into a table, and attach that table.",
            );
        }
        _ => return refuse(format!("{name} is not a table"), "Attach a table."),
    }
    if table.has_relatives {
        return refuse(format!("{name} is a partition or takes part in inheritance"), RELATIVES);
    }
    if table.is_temporary {
        return refuse(
            format!("{name} is a temporary table"),
            "Only the session that created it can read its rows. Attach a permanent table.",
        );
    }
    if ["kb", "pg_catalog", "information_schema"].contains(&table.schema.as_str()) {
        return refuse(format!("{name} is a system table"), "Attach a table of your own.");
    }
    if !table.is_own {
        return Err(Error::Permission { problem: format!("table {name} belongs to another role") });
    }
    if table.key.is_empty() {
        return refuse(
            format!("table {name} has no primary key"),
            "The key of a row becomes the external_id of its document. Add one with ALTER TABLE ... ADD PRIMARY KEY (...).",
        );
    }
    Ok(())
}

/// Parses and checks all arguments; all problems are reported together.
fn check_config(table: &UserTable, wanted: WantedTable, embedder: Option<&Embedder>) -> Result<RowSource> {
    let mut problems = Vec::new();
    let names =
        if Template::is_template(&wanted.content) { Vec::new() } else { table::names(&wanted.content)? };
    let content = RowContent::parse(&wanted.content, names).unwrap_or_else(|problem| {
        problems.push(format!("content: {problem}"));
        RowContent::Columns(Vec::new())
    });
    let json_columns = table::json_columns(table.relation, &content.columns())?;
    let json_fields = RowJsonFields::parse("json_fields", &wanted.json_fields).unwrap_or_else(|found| {
        problems.extend(found);
        RowJsonFields::default()
    });
    if !wanted.json_fields.is_null() && json_columns.is_empty() {
        problems.push("json_fields: no column of content holds json or jsonb".into());
    }
    let mut source = RowSource {
        content,
        json_columns,
        json_fields,
        metadata: wanted.metadata,
        title: wanted.title,
        uri: wanted.uri,
        content_type: wanted.content_type,
        tenant: wanted.tenant,
        published_when: None,
        published_columns: Vec::new(),
        replicated: wanted.replicated,
        adopt: None,
    };
    if let (Some(column), Some(embedder)) = (wanted.adopt, embedder) {
        match table::vector_dimension(table.relation, &column)? {
            None => {
                problems.push(format!("adopt: column \"{column}\" of type vector or halfvec does not exist"))
            }
            Some(found) if found.is_some_and(|found| found != embedder.dimension) => problems.push(format!(
                "adopt: column \"{column}\" has vectors of {} dimensions, but those of embedder \"{}\" have {}",
                found.unwrap_or(0),
                embedder.id,
                embedder.dimension
            )),
            Some(_) => source.adopt = Some(Adopt { column, fingerprint: embedder.fingerprint() }),
        }
    }
    let tenant = source.tenant.iter().map(|column| ("tenant", column.as_str()));
    let mut named: Vec<(&str, &str)> = tenant.collect();
    named.extend(source.content.columns().into_iter().map(|column| ("content", column)));
    named.extend(source.metadata.iter().map(|column| ("metadata", column.as_str())));
    for (argument, column) in [
        ("title", &source.title),
        ("uri", &source.uri),
        ("content_type", &source.content_type),
        ("json_fields.type_column", &source.json_fields.type_column),
    ] {
        named.extend(column.iter().map(|column| (argument, column.as_str())));
    }
    for (argument, column) in named {
        if trigger::column(table.relation, column).is_none() {
            problems.push(format!("{argument}: column \"{column}\" does not exist"));
        }
    }
    if let Some(text) = &wanted.published_when {
        // Literals are parsed by the types of the columns, which the owner may have written.
        let condition = as_role_of_name(&table.owner, || Condition::parse_argument(table.relation, text))?;
        if condition.is_mutable() {
            problems.push(
                "published_when: it calls a function that is not IMMUTABLE, so its result could change while the row \
                 does not".into(),
            );
        }
        match condition.columns() {
            Some(numbers) => source.published_columns = table::column_names(table.relation, &numbers)?,
            None => problems
                .push("published_when: it reads a whole row or a system column; name the columns".into()),
        }
        source.published_when = Some(setting::with(PRINTED, || condition.print()));
    }
    let size = serde_json::to_string(&source).map_or(0, |source| source.len());
    problems.extend(sizes::problem(size, sizes::SOURCE).map(|problem| format!("as JSON {problem}")));
    match problems.is_empty() {
        true => Ok(source),
        false => Err(Error::configuration(format!("table {}", table.name), problems)),
    }
}
