//! What a run needs of a type of source: a list of what there is, and the content of what is wanted. Pure.

use kb_types::Json;
use kb_types::error::Result;

/// Lists and reads a source, on a helper thread. An error means that this cannot be done now, for a reason
/// that has nothing to do with the source, such as a gateway that does not run: the job is done again later.
pub trait Reader: Send + Sync {
    /// Whether the source as a whole still has this version ([`Listing::version`]), so that it need not be
    /// listed.
    fn is_at(&self, _version: &str) -> bool {
        false
    }

    /// Lists everything that there is.
    fn list(&self) -> Result<Listing>;

    /// Reads the first of `wanted`, in their order: at least one of them, and as many as go together (about
    /// [`READ_BYTES`]).
    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>>;

    /// The uri of a document.
    fn uri(&self, path: &str) -> String;

    /// What to say if nothing is listed.
    fn nothing(&self) -> String;

    /// Whether the gateway is to run when it lists or reads.
    fn needs_gateway(&self) -> bool {
        false
    }
}

/// What is read and put together, in bytes, but for a single item that is larger.
pub const READ_BYTES: usize = 8 << 20;

/// Something that can be a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its name within the source. No two have the same. Items are read in the order of the listing.
    pub path: String,
    /// What changes when it changes; None if only reading it can tell.
    pub version: Option<String>,
    /// In bytes; 0 if that is not known.
    pub size: usize,
}

#[derive(Debug, Default)]
pub struct Listing {
    pub items: Vec<Item>,
    /// What was listed but cannot be a document: its name, and why.
    pub failed: Vec<(String, String)>,
    /// Why the listing was not read to its end; the first reason. Then nothing is deleted.
    pub problem: Option<String>,
    /// What changes when anything of the source changes; None if nothing tells.
    pub version: Option<String>,
}

/// An item that is to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub path: String,
    /// The version that was read last; None if it is to be read in any case.
    pub known: Option<String>,
    pub size: usize,
}

/// An item as it was read.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// It no longer exists.
    Gone,
    /// It still has the version that is known.
    Unchanged,
    Unreadable(String),
    TooLarge(usize),
    Read(Found),
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Found {
    pub bytes: Vec<u8>,
    /// '' if it may have changed meanwhile.
    pub version: String,
    /// The name of the file, if it is not the end of the path.
    pub name: Option<String>,
    /// The type that it is said to have; None: it is found out.
    pub content_type: Option<String>,
    /// What is said of it, if the bytes are text and no file.
    pub described: Option<Described>,
}

/// What a source says of a text.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Described {
    pub title: Option<String>,
    pub uri: Option<String>,
    pub metadata: Option<Json>,
    /// Whether a missing title or uri means that there is none.
    pub has_title: bool,
    pub has_uri: bool,
}
