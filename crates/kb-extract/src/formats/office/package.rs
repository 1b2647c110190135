//! Reads the parts of a zip archive. What is unpacked has a limit, because a small archive can unpack to any
//! size.

use crate::charset;
use crate::formats::office::xml::Xml;
use kb_types::extraction::{Fault, File};
use std::collections::HashMap;
use std::io::{Cursor, Read};
use zip::ZipArchive;
use zip::result::ZipError;

/// The most bytes of a part.
const MAX_PART: u64 = 64 << 20;
/// The most bytes of all parts that are read. A part that is read twice counts twice.
const MAX_ALL: u64 = 256 << 20;

pub struct Package<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// How many more bytes may be unpacked.
    left: u64,
}

/// A relationship of Office Open XML from one part to another.
#[derive(Debug)]
pub struct Relationship {
    /// The last segment of its type, such as "slide".
    pub kind: String,
    /// The name of the part.
    pub target: String,
}

impl<'a> Package<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Package<'a>, Fault> {
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| fault(&error))?;
        Ok(Package { archive, left: MAX_ALL })
    }

    /// Whether a part has a name that contains this.
    pub fn has(&self, text: &str) -> bool {
        self.archive.file_names().flatten().any(|name| name.contains(text))
    }

    /// The bytes of a part, or None where there is no part of this name.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        let entry = match self.archive.by_name(name) {
            Ok(entry) => entry,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(fault(&error)),
        };
        let limit = MAX_PART.min(self.left);
        let mut bytes = Vec::new();
        entry
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|_| Fault::Broken(format!("its part \"{name}\" cannot be unpacked")))?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if bytes.len() as u64 > limit {
            return Err(Fault::TooLarge(format!("its part \"{name}\" unpacks to more than {limit} bytes")));
        }
        Ok(Some(bytes))
    }

    /// The text of an XML part, or None where there is no part of this name.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Fault> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        Ok(Some(charset::decode(&File { bytes, ..File::default() })?.text))
    }

    /// The text of an XML part without which the file cannot be read.
    pub fn needed(&mut self, name: &str) -> Result<String, Fault> {
        self.text(name)?.ok_or_else(|| Fault::Broken(format!("it has no part \"{name}\"")))
    }

    /// Refuses an archive that unpacks to more than is allowed, for a library that unpacks it itself.
    pub fn check_all(&mut self) -> Result<(), Fault> {
        let names: Vec<String> = self.archive.file_names().flatten().map(|name| name.to_string()).collect();
        names.iter().try_for_each(|name| self.read(name).map(drop))
    }

    /// The relationships of a part of Office Open XML, by their ids. The part "" is the whole package.
    pub fn relationships(&mut self, part: &str) -> Result<HashMap<String, Relationship>, Fault> {
        let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
        let name = resolve(folder, &format!("_rels/{file}.rels"));
        let mut found = HashMap::new();
        let Some(text) = self.text(&name)? else { return Ok(found) };
        let mut xml = Xml::new(&text);
        xml.child()?;
        while let Some(element) = xml.child()? {
            if let (Some(id), Some(kind), Some(target)) =
                (element.attribute("Id"), element.attribute("Type"), element.attribute("Target"))
                && element.attribute("TargetMode").is_none_or(|mode| mode != "External")
            {
                let kind = kind.rsplit('/').next().unwrap_or_default().to_string();
                found.insert(id, Relationship { kind, target: resolve(folder, &target) });
            }
            xml.skip()?;
        }
        Ok(found)
    }

    /// The part that a relationship of this kind leads to from another part.
    pub fn related(&mut self, part: &str, kind: &str) -> Result<Option<String>, Fault> {
        let relationships = self.relationships(part)?;
        Ok(relationships.into_values().find(|related| related.kind == kind).map(|related| related.target))
    }
}

/// The name of a part by a reference from within a folder.
pub fn resolve(folder: &str, reference: &str) -> String {
    let mut segments: Vec<&str> = match reference.starts_with('/') {
        true => Vec::new(),
        false => folder.split('/').filter(|segment| !segment.is_empty()).collect(),
    };
    for segment in reference.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

fn fault(error: &ZipError) -> Fault {
    match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => Fault::Encrypted,
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            Fault::Broken("its archive is packed in a way that cannot be read".into())
        }
        _ => Fault::Broken("its archive cannot be unpacked".into()),
    }
}
