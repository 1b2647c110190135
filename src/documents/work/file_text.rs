//! Who finds the text of a file: kb-extract, or the extraction service that the knowledge base names for
//! files of its type.

use crate::extract::{Program, error_of};
use crate::work::Target;
use kb_text::model_answers::Consulted;
use kb_text::parse::join;
use kb_types::error::{Error, Result};
use kb_types::extraction::{Extraction, Fault, File};
use kb_types::preprocess::When;
use kb_types::{Bounds, Extractor};
use std::sync::Arc;

pub enum Reader {
    /// The program, and what it has found already.
    Program(Option<Extraction>),
    /// A service, which gets the file as this media type.
    Service(Arc<Extractor>, String),
}

/// Who finds the text of a file. `target` is the build under whose settings the document is made now.
pub fn reader(file: &File, external_id: &str, target: &Target, program: &Program) -> Result<Reader> {
    let content_type = match program.read(File { max_text: 0, ..file.clone() }, external_id)? {
        Ok(found) => found.content_type,
        Err(Fault::Unsupported { content_type }) => content_type,
        Err(fault) => return Err(error_of(fault, external_id)),
    };
    let Some(named) = target.build.preprocess.extractor_of(&content_type) else {
        return Ok(Reader::Program(None));
    };
    if named.when == When::NoText {
        match program.read(file.clone(), external_id)? {
            Ok(found) if !found.text.trim().is_empty() => return Ok(Reader::Program(Some(found))),
            Ok(_) | Err(Fault::ImagesOnly | Fault::Unsupported { .. }) => {}
            Err(fault) => return Err(error_of(fault, external_id)),
        }
    }
    let extractor = target.extractors.iter().find(|extractor| extractor.id == named.extractor);
    let extractor = extractor.ok_or_else(|| Error::Internal("an extractor was not read".into()))?;
    Ok(Reader::Service(Arc::new(extractor.clone()), content_type))
}

/// The text that a service has found in a file. None: it is to be asked first.
pub fn of_service(
    extractor: &Extractor,
    content_type: &str,
    file: File,
    build_no: i64,
    bounds: &Bounds,
    consulted: &mut Consulted,
) -> Result<Option<Extraction>> {
    let Some(found) = consulted.known_file(extractor, &file) else {
        consulted.request_file(build_no, extractor, file)?;
        return Ok(None);
    };
    Ok(Some(Extraction { content_type: content_type.to_string(), ..join(&found, bounds)? }))
}
