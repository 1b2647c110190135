//! Reads turns for a chat model, on a branch and those before it.

use crate::conversations::shown_turns::ShownTurns;
use crate::conversations::sql::turns;
use crate::conversations::summary::End;
use kb_types::error::Result;

/// How many turns are read at once.
const AT_ONCE: i64 = 8;

/// Reads turns after a depth and up to another one, as many as a prompt holds.
pub fn read(end: &End, after: i64, boundary: i64) -> Result<ShownTurns> {
    let mut turns = ShownTurns::default();
    let mut after = after;
    for (branch_no, up_to) in turns::segments(end.place(), after)? {
        let up_to = up_to.min(boundary);
        while after < up_to {
            let part = turns::next(branch_no, after, up_to, AT_ONCE)?;
            let Some(last) = part.last() else { break };
            after = last.depth;
            for turn in &part {
                if !turns.add(turn) {
                    return Ok(turns);
                }
            }
        }
    }
    Ok(turns)
}
