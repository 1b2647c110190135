//! Local models.
