//! Where builds have moved to that documents are being put into. A build moves to a table of its own while
//! its documents are under way: they go there, too.

use super::VectorDb;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

thread_local! {
    /// By the numbers of builds.
    static MOVED: RefCell<HashMap<i64, Arc<OnceLock<VectorDb>>>> = RefCell::default();
}

/// More entries are looked through for those that nobody needs any more.
const MOST: usize = 1000;

/// Filled when the build gets a table of its own.
pub fn watch(build_no: i64) -> Arc<OnceLock<VectorDb>> {
    MOVED.with_borrow_mut(|moved| {
        if moved.len() > MOST {
            moved.retain(|_, cell| Arc::strong_count(cell) > 1);
        }
        Arc::clone(moved.entry(build_no).or_default())
    })
}

/// A build has moved: what is under way goes to its own table.
pub fn note(build_no: i64, own: VectorDb) {
    MOVED.with_borrow(|moved| {
        if let Some(moved) = moved.get(&build_no) {
            // It moves once.
            let _ = moved.set(own);
        }
    });
}
