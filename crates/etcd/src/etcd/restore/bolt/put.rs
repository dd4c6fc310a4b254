//! Single values of buckets that may be large: only the pages on the way to them are written anew.

use super::{
    BRANCH, Bolt, Element, LEAF, MAX_DEPTH, MAX_PATH, Page, RestoreError, bucket_value, foreign, parse, u64_at,
};

/// A page on the way to a key, and which of its elements leads there.
type Way = Vec<(Page, usize)>;

impl Bolt {
    pub fn has_bucket(&self, name: &str) -> bool {
        self.buckets.contains_key(name.as_bytes())
    }

    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        self.buckets.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    /// Where the meta page is that the next commit writes.
    pub fn next_meta(&self) -> u64 {
        (self.transaction + 1) % 2 * self.page_size
    }

    /// Puts another value in the place of that of a key, if it is there. Whether it was.
    pub fn change(
        &mut self,
        name: &str,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> Result<Vec<u8>, RestoreError>,
    ) -> Result<bool, RestoreError> {
        let Some(mut way) = self.way_to(name, key)? else { return Ok(false) };
        let Some((mut leaf, at)) = way.pop() else { return Ok(false) };
        leaf.elements[at].value = change(&leaf.elements[at].value)?;
        let mut child = self.write(&leaf)?;
        while let Some((mut branch, at)) = way.pop() {
            branch.elements[at].child = child;
            child = self.write(&branch)?;
        }
        let sequence = u64_at(self.bucket(name)?, 8)?;
        self.buckets.insert(name.into(), bucket_value(child, sequence));
        Ok(true)
    }

    /// The pages from a bucket's root to the leaf that has a key.
    fn way_to(&self, name: &str, key: &[u8]) -> Result<Option<Way>, RestoreError> {
        let value = self.bucket(name)?;
        let mut look = self.look(MAX_PATH);
        let mut page = match u64_at(value, 0)? {
            0 => parse(value.get(16..).unwrap_or_default())?,
            root => self.page(root, &mut look)?,
        };
        let mut way = Way::new();
        while page.flags == BRANCH {
            let behind = page.elements.partition_point(|element| element.key.as_slice() <= key);
            let at = behind.saturating_sub(1);
            let child = page.elements.get(at).map(|element| element.child);
            let child = child.filter(|_| way.len() < MAX_DEPTH);
            let child = child.ok_or_else(|| foreign(format!("the bucket `{name}` is damaged")))?;
            way.push((page, at));
            page = self.page(child, &mut look)?;
        }
        let found = page.elements.iter().position(|element: &Element| element.key == key);
        Ok(found.filter(|_| page.flags == LEAF).map(|at| {
            way.push((page, at));
            way
        }))
    }
}
