//! Locks on names, which no SQL function can take.

use pgrx::pg_sys;

/// The advisory locks of SQL functions have 1 or 2 here, depending on their arguments, so no other lock can
/// be the same as one of these.
const CLASS: u16 = 3;

/// Takes the lock of this name, and waits for it if necessary. It is held until the transaction ends.
pub fn lock(name: &str) {
    let hash = blake3::hash(name.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    // SAFETY: the same call as in pg_advisory_xact_lock. The wait is that of any lock, and an interrupt
    // raises an ERROR.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: u32::from_be_bytes([a, b, c, d]),
            locktag_field3: u32::from_be_bytes([e, f, g, h]),
            locktag_field4: CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        };
        pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, false, false);
    }
}
