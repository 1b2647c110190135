//! Maps the chunks of a segment to their new numbers, in so little memory that look-ups rarely miss the
//! processor's cache.

use super::corrupt::Corrupt;

/// Marks a deleted chunk.
pub const DEAD: u32 = u32::MAX;

const GROUP: usize = u64::BITS as usize;

pub struct Renumbering {
    groups: Vec<Group>,
    count: u32,
}

#[derive(Clone, Copy)]
struct Group {
    /// A bit for each chunk that is not dead.
    live: u64,
    /// The new number of the first live chunk.
    first: u32,
}

impl Renumbering {
    /// `numbers` has the new number of each chunk. Those that are not DEAD must be consecutive.
    pub fn new(numbers: &[u32]) -> Result<Self, Corrupt> {
        let count = u32::try_from(numbers.len()).map_err(|_| Corrupt("a segment has too many chunks"))?;
        let mut next = numbers.iter().copied().find(|number| *number != DEAD).unwrap_or(0);
        let mut groups = Vec::with_capacity(numbers.len().div_ceil(GROUP));
        for numbers in numbers.chunks(GROUP) {
            let mut group = Group { live: 0, first: next };
            for (i, number) in numbers.iter().enumerate().filter(|(_, number)| **number != DEAD) {
                if *number != next {
                    return Err(Corrupt("new numbers of chunks do not follow each other"));
                }
                group.live |= 1 << i;
                next += 1;
            }
            groups.push(group);
        }
        Ok(Renumbering { groups, count })
    }

    /// None for a deleted chunk.
    #[inline]
    pub fn number(&self, chunk: u32) -> Result<Option<u32>, Corrupt> {
        let group = self.groups.get(chunk as usize / GROUP).filter(|_| chunk < self.count);
        let group = group.ok_or(Corrupt("a posting has a chunk that the segment does not have"))?;
        let bit = 1 << (chunk as usize % GROUP);
        let before = (group.live & (bit - 1)).count_ones();
        Ok((group.live & bit != 0).then(|| group.first + before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn numbers_are_those_given() {
        let mut random = Rng::with_seed(1);
        for count in [0, 1, 63, 64, 65, 1000] {
            for share in [0, 1, 50, 100] {
                let mut next = 7;
                let mut number = || {
                    let live = random.usize(..100) >= share;
                    next += u32::from(live);
                    if live { next - 1 } else { DEAD }
                };
                let numbers: Vec<u32> = (0..count).map(|_| number()).collect();
                let renumbering = Renumbering::new(&numbers).unwrap();
                for (chunk, number) in numbers.iter().enumerate() {
                    let expected = (*number != DEAD).then_some(*number);
                    assert_eq!(renumbering.number(chunk as u32).unwrap(), expected);
                }
                assert!(renumbering.number(count).is_err() && renumbering.number(u32::MAX).is_err());
            }
        }
        for numbers in [[1, 3].as_slice(), &[1, 1], &[1, 0], &[5, DEAD, 7]] {
            assert!(Renumbering::new(numbers).is_err());
        }
    }
}
