//! Choices that a seed makes, the same each time.

/// splitmix64: small, and the same on every machine and with every version of every crate.
#[derive(Clone, Debug)]
pub struct Choice(u64);

impl Choice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same() {
        let chosen = |seed| (0..5).scan(Choice::new(seed), |choice, _| Some(choice.below(1000))).collect::<Vec<_>>();
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
    }
}
