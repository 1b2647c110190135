//! Files within a file, such as the attachments of a message: each becomes a document of its own, which is
//! deleted with the document that contains it.

use crate::documents::new_document::{Content, GivenDocument, check};
use crate::documents::new_documents::{self, DocumentPlace};
use crate::documents::sql::parts;
use crate::jobs::queue::{self, Job, Subject};
use crate::pg::wake;
use crate::tenants::quota::Charge;
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::row_states::PutStatus;
use kb_types::{id, sizes};
use std::collections::HashSet;

/// Files may be within each other so deep. A message that is forwarded again and again contains all others
/// each time, so that the bytes of all together grow with the square of the depth.
const DEPTH: i64 = 4;

/// Puts the parts of a document, and deletes those that it no longer has. In the transaction that writes the
/// document. `owner` is the tenant of the knowledge base.
pub fn put(document_id: i64, job: &Job, owner: &str, files: Vec<File>) -> Result<()> {
    if files.is_empty() {
        return if parts::any(document_id)? { parts::delete_others(document_id, &[]) } else { Ok(()) };
    }
    let Some(whole) = parts::whole(document_id)? else { return Ok(()) };
    let fault = |problem| Error::Document { external_id: job.external_id.clone(), problem };
    if whole.depth >= DEPTH {
        return Err(fault(format!("it contains files, and is itself within {DEPTH} others")));
    }
    let mut documents = Vec::new();
    let mut names = HashSet::new();
    for (number, file) in files.into_iter().enumerate() {
        let external_id = name(&job.external_id, number + 1, file.name.as_deref(), &names)?;
        names.insert(external_id.clone());
        documents.push(check(GivenDocument {
            content: Content::File { bytes: file.bytes, name: file.name.unwrap_or_default() },
            metadata: None,
            title: None,
            content_type: file.content_type,
            uri: None,
            chunking: None,
            external_id,
        })?);
    }
    // A part is cut as the whole.
    documents.iter_mut().for_each(|document| document.chunking = Some(whole.chunking.clone()));
    let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
    if let Some(taken) = parts::taken(document_id, job.kb_no, &job.tenant_id, &ids)?.first() {
        return Err(fault(format!("it contains a file for which another document has the name \"{taken}\"")));
    }
    parts::delete_others(document_id, &ids)?;
    let mut charge = Charge::begin(owner, job.kb_no, false)?;
    charge.as_mut().map_or(Ok(()), |charge| charge.look(&job.tenant_id, &ids))?;
    let place = DocumentPlace {
        kb_no: job.kb_no,
        kb_id: &whole.kb_id,
        tenant_id: &job.tenant_id,
        // A source lists files, not what is within them.
        source_no: None,
        part_of: Some(document_id),
    };
    let mut changed = Vec::new();
    for document in &documents {
        charge.as_mut().map_or(Ok(()), |charge| document.charge(charge))?;
        if new_documents::put(&place, document)? != Some(PutStatus::Skipped) {
            let name = document.external_id.clone();
            changed.push(Subject { tenant_id: job.tenant_id.clone(), name, source_no: None });
        }
    }
    charge.map_or(Ok(()), Charge::book)?;
    queue::enqueue(job.kb_no, &changed, job.priority, job.run_no)?;
    wake::at_commit(job.kb_no);
    Ok(())
}

/// The external_id of a part: that of the whole and the part's name, or its number if it has none. The number
/// also tells parts of the same name apart.
fn name(whole: &str, number: usize, name: Option<&str>, taken: &HashSet<String>) -> Result<String> {
    let name = name.map(|name| name.replace(|c: char| c.is_control(), " ")).unwrap_or_default();
    let named = format!("{whole}/{}", sizes::cut(name.trim(), NAME));
    let found = match name.trim().is_empty() || taken.contains(&named) {
        true => format!("{whole}/{number} {}", sizes::cut(name.trim(), NAME)).trim_end().to_string(),
        false => named,
    };
    match id::problem(&found, id::MAX_EXTERNAL_BYTES) {
        None => Ok(found),
        Some(problem) => Err(Error::Argument { argument: "external_id", problem }),
    }
}

/// The bytes of a part's name that become part of its external_id.
const NAME: usize = 200;
