//! kb.documents: puts documents.

use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::BY_INDEX_UNPLANNED;
use crate::tenants::quota::Charge;
use crate::tenants::quotas::StoredSize;
use kb_types::Json;
use kb_types::error::Result;
use kb_types::row_states::PutStatus;

/// A document that is to be put.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    pub external_id: String,
    /// The bytes that were put, if `content` does not equal them.
    pub original: Option<Vec<u8>>,
    /// Empty for a file, whose text is not known yet.
    pub content: String,
    /// The name of the file, if it was put as one. Then `original` has its bytes.
    pub file_name: Option<String>,
    pub content_type: String,
    pub title: Option<String>,
    pub uri: Option<String>,
    /// None: the document keeps its metadata, or has none.
    pub metadata: Option<Json>,
    /// Whether a missing title or uri means that the document has none, not that it keeps the one it has.
    pub title_is_given: bool,
    pub uri_is_given: bool,
    /// How it is cut, with every default; an empty object stands for what the knowledge base says. None: as
    /// before.
    pub chunking: Option<Json>,
}

impl NewDocument {
    /// A placeholder for a row that could not be read.
    pub fn without_text(external_id: &str) -> NewDocument {
        NewDocument {
            external_id: external_id.to_string(),
            original: None,
            content: String::new(),
            file_name: None,
            content_type: "text/plain".into(),
            title: None,
            uri: None,
            metadata: None,
            title_is_given: false,
            uri_is_given: false,
            chunking: None,
        }
    }

    pub fn has_text(&self) -> bool {
        !self.content.is_empty() || self.file_name.is_some()
    }

    /// The number of bytes of everything that is given.
    pub fn size(&self) -> i64 {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let metadata = self.metadata.as_ref().map(Json::as_str).filter(|metadata| *metadata != "{}");
        let text = self.original.as_ref().map_or(self.content.len(), Vec::len);
        (text + length(&self.title) + length(&self.uri) + metadata.map_or(0, str::len)) as i64
    }

    /// Counts the document before it is put. Returns an error if it exceeds the quota.
    pub fn charge(&self, charge: &mut Charge) -> Result<()> {
        charge.add(&self.external_id, self.has_text(), |stored| self.size_with_kept(stored))
    }

    /// The bytes of what is put, and of what remains of the document that is stored in its place, as in
    /// [`kept`].
    fn size_with_kept(&self, stored: &StoredSize) -> i64 {
        let of = |is_kept: bool, bytes: i64| if is_kept { bytes } else { 0 };
        self.size()
            + of(self.metadata.is_none(), stored.metadata)
            + of(self.uri.is_none() && !self.uri_is_given, stored.uri)
            + of(self.title.is_none() && !self.title_is_given, stored.title)
    }

    /// A hash that changes when the document must be processed again.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.content_type.as_bytes());
        hasher.update(&[0]);
        match (&self.file_name, &self.original) {
            (Some(name), Some(bytes)) => {
                hasher.update(name.as_bytes());
                hasher.update(&[0]);
                hasher.update(bytes);
            }
            _ => {
                hasher.update(self.content.as_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }
}

/// The tenant and the origin of a document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DocumentPlace<'a> {
    pub kb_no: i64,
    pub kb_id: &'a str,
    pub tenant_id: &'a str,
    /// None: a caller puts it.
    pub source_no: Option<i64>,
    /// The document of the file that contains this one.
    pub part_of: Option<i64>,
}

/// The bytes that remain of a document d where these are not given: metadata ($1), uri ($2, $3), title ($4,
/// $5).
fn kept(parts: [&str; 5]) -> String {
    let [metadata, uri, uri_is_given, title, title_is_given] = parts;
    format!(
        "CASE WHEN {metadata} IS NULL THEN coalesce(pg_catalog.octet_length(nullif(d.metadata::text, '{{}}')), 0) ELSE 0 END
         + CASE WHEN {uri} IS NULL AND NOT {uri_is_given} THEN coalesce(pg_catalog.octet_length(d.uri), 0) ELSE 0 END
         + CASE WHEN {title} IS NULL AND NOT {title_is_given} THEN coalesce(pg_catalog.octet_length(d.title), 0) ELSE 0 END"
    )
}

/// The metadata of a document d without what its file says of itself.
pub const GIVEN: &str = "CASE WHEN d.file_metadata IS NULL THEN d.metadata ELSE coalesce((
        SELECT pg_catalog.jsonb_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each(d.metadata) m
        WHERE d.file_metadata -> m.key IS DISTINCT FROM m.value), '{}') END";

/// Inserts or updates a document. A failed document that is put again is updated even if its content is the
/// same, and so is one that gets another chunking, or another title if titles are part of its chunks'
/// context. Returns None, and does nothing, if the external_id is taken by a document of another origin.
pub fn put(place: &DocumentPlace, document: &NewDocument) -> Result<Option<PutStatus>> {
    let hash = document.hash();
    let update = format!("UPDATE kb.documents d SET stored_bytes = $11 + {}, 
             metadata = coalesce(coalesce(file_metadata, '{{}}') || $4, metadata),
             uri = CASE WHEN $9 THEN $5 ELSE coalesce($5, uri) END,
             title = CASE WHEN $10 THEN $6 ELSE coalesce($6, title) END, updated_at = now()
         WHERE kb_no = $1 AND tenant_id = $7 AND external_id = $2 AND content_hash = $3 AND status <> 'failed'
           AND source_no IS NOT DISTINCT FROM $8 AND part_of IS NOT DISTINCT FROM $12
           AND ($13 IS NULL OR chunking IS NOT DISTINCT FROM nullif($13, '{{}}'))
           AND (title IS NOT DISTINCT FROM CASE WHEN $10 THEN $6 ELSE coalesce($6, title) END
                OR CASE WHEN d.chunking IS NULL THEN NOT EXISTS (
                        SELECT FROM kb.builds b WHERE b.kb_no = $1 AND b.chunking ->> 'context' LIKE '%title%')
                   ELSE coalesce(d.chunking ->> 'context', '') NOT LIKE '%title%' END)",
            kept(["$4", "$5", "$9", "$6", "$10"])
        );
    let arguments = [
        Arg::Long(place.kb_no),
        Arg::Text(&document.external_id),
        Arg::Bytes(&hash),
        Arg::JsonText(document.metadata.as_ref()),
        Arg::TextOrNull(document.uri.as_deref()),
        Arg::TextOrNull(document.title.as_deref()),
        Arg::Text(place.tenant_id),
        Arg::LongOrNull(place.source_no),
        Arg::Bool(document.uri_is_given),
        Arg::Bool(document.title_is_given),
        Arg::Long(document.size()),
        Arg::LongOrNull(place.part_of),
        Arg::JsonText(document.chunking.as_ref()),
    ];
    let unchanged = setting::with(BY_INDEX_UNPLANNED, || spi::execute(&update, &arguments))?;
    if unchanged > 0 {
        return Ok(Some(PutStatus::Skipped));
    }
    let added = spi::write_one(
        &format!("INSERT INTO kb.documents AS d
             (kb_no, tenant_id, external_id, uri, title, content_type, content, content_hash, metadata, kb_id, original,
              source_no, stored_bytes, file_name, part_of, chunking)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, '{{}}'), $10, $11, $12, $14, $16, $17, nullif($18, '{{}}'))
         ON CONFLICT (kb_no, tenant_id, external_id) DO UPDATE SET
             uri = CASE WHEN $13 THEN $4 ELSE coalesce($4, d.uri) END, title = EXCLUDED.title,
             content_type = EXCLUDED.content_type, content = EXCLUDED.content, original = EXCLUDED.original,
             content_hash = EXCLUDED.content_hash, metadata = coalesce($9, {GIVEN}), status = 'pending',
             error = NULL, sqlstate = NULL, attempts = 0, updated_at = now(), stored_bytes = $14 + {},
             file_name = EXCLUDED.file_name, file_metadata = NULL, part_of = EXCLUDED.part_of,
             chunking = CASE WHEN $18 IS NULL THEN d.chunking ELSE nullif($18, '{{}}') END,
             settings = CASE WHEN d.settings IS NOT NULL AND $18 IS NOT NULL
                                 AND d.chunking IS DISTINCT FROM nullif($18, '{{}}') THEN '' ELSE d.settings END
             WHERE d.source_no IS NOT DISTINCT FROM $12
         RETURNING d.xmax = 0",
            kept(["$9", "$4", "$13", "$5", "$15"])
        ),
        &[
            Arg::Long(place.kb_no),
            Arg::Text(place.tenant_id),
            Arg::Text(&document.external_id),
            Arg::TextOrNull(document.uri.as_deref()),
            Arg::TextOrNull(document.title.as_deref()),
            Arg::Text(&document.content_type),
            Arg::TextOrNull(document.file_name.is_none().then_some(document.content.as_str())),
            Arg::Bytes(&hash),
            Arg::JsonText(document.metadata.as_ref()),
            Arg::Text(place.kb_id),
            Arg::BytesOrNull(document.original.as_deref()),
            Arg::LongOrNull(place.source_no),
            Arg::Bool(document.uri_is_given),
            Arg::Long(document.size()),
            Arg::Bool(document.title_is_given),
            Arg::TextOrNull(document.file_name.as_deref()),
            Arg::LongOrNull(place.part_of),
            Arg::JsonText(document.chunking.as_ref()),
        ],
        Row::only::<bool>,
    )?;
    Ok(added.map(|added| if added { PutStatus::Added } else { PutStatus::Updated }))
}
