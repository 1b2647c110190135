//! Compares values in their stored form.

use pgrx::pg_sys;
use std::ffi::CStr;

/// How the values of a type are stored.
#[derive(Clone, Copy)]
pub struct Storage {
    pub length: i16,
    pub is_by_value: bool,
}

/// Whether two values are equal byte for byte. A large value that is stored outside its row is not read if
/// both are the same stored value.
pub fn same(stored: Storage, old: Option<pg_sys::Datum>, new: Option<pg_sys::Datum>) -> bool {
    let (old, new) = match (old, new) {
        (None, None) => return true,
        (Some(old), Some(new)) => (old, new),
        _ => return false,
    };
    if stored.is_by_value {
        return old.value() == new.value();
    }
    let (a, b): (*mut u8, *mut u8) = (old.cast_mut_ptr(), new.cast_mut_ptr());
    // SAFETY: both are pointers to values of a type that is stored in this way.
    unsafe {
        match stored.length {
            -1 => same_varlena(a.cast(), b.cast()),
            -2 => CStr::from_ptr(a.cast()) == CStr::from_ptr(b.cast()),
            length => bytes(a, length as usize) == bytes(b, length as usize),
        }
    }
}

unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: the caller knows that this number of bytes can be read.
    unsafe { std::slice::from_raw_parts(start, length) }
}

unsafe fn same_varlena(a: *mut pg_sys::varlena, b: *mut pg_sys::varlena) -> bool {
    use pgrx::varlena::{vardata_any, varsize_any, varsize_any_exhdr};
    // SAFETY: both are values with a length word. Detoasting returns the value itself if it is plain.
    unsafe {
        let stored = |value: *mut pg_sys::varlena| bytes(value.cast(), varsize_any(value));
        if stored(a) == stored(b) {
            return true;
        }
        let (plain_a, plain_b) = (pg_sys::pg_detoast_datum_packed(a), pg_sys::pg_detoast_datum_packed(b));
        let plain = |value: *mut pg_sys::varlena| bytes(vardata_any(value).cast(), varsize_any_exhdr(value));
        let is_same = plain(plain_a) == plain(plain_b);
        for (plain, given) in [(plain_a, a), (plain_b, b)] {
            if plain != given {
                pg_sys::pfree(plain.cast());
            }
        }
        is_same
    }
}
