//! Prints the extension's install script. pgrx's macros leave a description of each SQL object in section .pgrxsc of the library;
//! this reads a copy of that section from its input, and the control file that its argument names.

use pgrx_sql_entity_graph::section::decode_entities;
use pgrx_sql_entity_graph::{ControlFile, PgrxSql, SqlGraphEntity};
use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("give the path of the control file")?;
    let control = ControlFile::from_str(&std::fs::read_to_string(path)?)?;
    let mut section = Vec::new();
    std::io::stdin().read_to_end(&mut section)?;
    if section.is_empty() {
        return Err("the library has no section .pgrxsc".into());
    }
    let mut entities = decode_entities(&section)?;
    entities.push(SqlGraphEntity::ExtensionRoot(control));
    PgrxSql::build(entities.into_iter(), "kb".into(), false)?.write(&mut std::io::stdout())?;
    Ok(())
}
