//! Conversion between the uuid crate's type and PostgreSQL's.

pub fn to_pg(uuid: uuid::Uuid) -> pgrx::Uuid {
    pgrx::Uuid::from_bytes(*uuid.as_bytes())
}

pub fn from_pg(uuid: pgrx::Uuid) -> uuid::Uuid {
    uuid::Uuid::from_bytes(*uuid.as_bytes())
}
