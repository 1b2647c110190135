//! Makes batches of texts from many documents, limited by count and by tokens.

/// Collects items until a batch is full. Items keep their order. Grouping texts by length is left to the
/// model, which pads them.
pub struct Batcher<T> {
    items: Vec<T>,
    tokens: usize,
    max_items: usize,
    max_tokens: usize,
}

impl<T> Batcher<T> {
    /// A batch has from one to `max_items` items. It has at most `max_tokens` tokens, unless a single item
    /// has more.
    pub fn new(max_items: usize, max_tokens: usize) -> Self {
        Batcher { items: Vec::new(), tokens: 0, max_items: max_items.max(1), max_tokens }
    }

    /// Adds an item; returns a batch when one is complete.
    pub fn push(&mut self, item: T, tokens: usize) -> Option<Vec<T>> {
        let overflows = !self.items.is_empty() && self.tokens.saturating_add(tokens) > self.max_tokens;
        let mut full = if overflows { self.flush() } else { None };
        self.items.push(item);
        self.tokens = self.tokens.saturating_add(tokens);
        // After an overflow, an item that fills a batch by itself waits for the next call.
        if full.is_none() && (self.items.len() >= self.max_items || self.tokens >= self.max_tokens) {
            full = self.flush();
        }
        full
    }

    /// Returns the items that are left, if any.
    pub fn flush(&mut self) -> Option<Vec<T>> {
        self.tokens = 0;
        let items = std::mem::take(&mut self.items);
        (!items.is_empty()).then_some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(max_items: usize, max_tokens: usize, sizes: &[usize]) -> Vec<Vec<usize>> {
        let mut batcher = Batcher::new(max_items, max_tokens);
        let mut batches: Vec<Vec<usize>> = sizes.iter().filter_map(|&s| batcher.push(s, s)).collect();
        batches.extend(batcher.flush());
        batches
    }

    #[test]
    fn a_batch_is_full_by_count_or_by_tokens() {
        assert_eq!(run(2, 100, &[1, 2, 3, 4, 5]), [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(run(10, 10, &[4, 6, 5, 6, 1]), [vec![4, 6], vec![5], vec![6, 1]]);
    }

    #[test]
    fn no_item_is_lost_reordered_or_put_over_the_limits() {
        let sizes: Vec<usize> = (0..500).map(|i| (i * 7919) % 61).collect();
        for (max_items, max_tokens) in [(1, 0), (1, 50), (7, 50), (96, 60), (3, 1000)] {
            let batches = run(max_items, max_tokens, &sizes);
            assert_eq!(batches.concat(), sizes);
            for batch in batches {
                let tokens: usize = batch.iter().sum();
                assert!(!batch.is_empty() && batch.len() <= max_items);
                assert!(tokens <= max_tokens || batch.len() == 1, "{batch:?}");
            }
        }
    }

    #[test]
    fn an_item_over_the_limit_goes_alone() {
        assert_eq!(run(10, 10, &[3, 50, 3]), [vec![3], vec![50], vec![3]]);
    }
}
