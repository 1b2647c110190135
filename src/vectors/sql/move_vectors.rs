//! Vectors that move to another tenant.

use super::segments::new_number;
use super::{Health, VectorDb};
use crate::pg::spi::{self, Arg, FromRow, Row};
use kb_types::error::Result;

/// Moves the vectors of a tenant in all builds of a knowledge base to another tenant. They get numbers above
/// all that an index has, as if they were new, so that an index receives them when it is built, not row by
/// row. The caller has locked their chunks. Must run as the owner.
pub fn move_vectors(kb_no: i64, from: &str, to: &str) -> Result<()> {
    let sql = format!("SELECT {}, b.build_no FROM kb.builds b WHERE b.kb_no = $1", VectorDb::columns("b"));
    let row = |row: &Row| Ok((VectorDb::from_row(row)?, row.get::<i64>("build_no")?));
    for (vector_db, build_no) in spi::write(&sql, &[Arg::Long(kb_no)], row)? {
        if vector_db.store().health()? != Health::Ready {
            continue;
        }
        let table = vector_db.table();
        let number = format!("SELECT {}", new_number(&table, "$1"));
        let Some(number) = spi::write_one(&number, &[Arg::Long(build_no)], Row::only::<i32>)? else {
            continue;
        };
        spi::execute(
            &format!(
                "UPDATE ONLY {table} SET tenant_id = $3, segment = $4 WHERE build_no = $1 AND tenant_id = $2"
            ),
            &[Arg::Long(build_no), Arg::Text(from), Arg::Text(to), Arg::Int(number)],
        )?;
        // Vectors are packed only from the numbers after these on.
        spi::execute("DELETE FROM kb.tail_vectors WHERE build_no = $1", &[Arg::Long(build_no)])?;
        spi::execute(
            "UPDATE kb.tails SET first = $2 WHERE build_no = $1",
            &[Arg::Long(build_no), Arg::Int(number.saturating_add(1))],
        )?;
    }
    Ok(())
}
