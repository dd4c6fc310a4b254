//! A look at every page of a database while it goes by, as bbolt's own check does it with a whole file.
//!
//! What is kept of a page is only where it leads to: a backup is stored as it comes, and neither memory nor a disk holds all of it.
//! Pages that are free hold whatever was there before, so a page counts against a database only if something leads to it. At the end
//! every tree is walked from its root: each page has to be what it says, and belongs to one place.

use std::collections::HashMap;

use etcdrun_base::mutant::{is_off, repair};

use super::{
    BRANCH, BUCKET, ELEMENT, HEADER, LEAF, META, NO_FREE_LIST, RestoreError, array, foreign, meta, parse, u16_at,
    u32_at, u64_at,
};

const FREE_LIST: u16 = 0x10;
/// A free list of this many has its real length in front.
const MANY: u16 = u16::MAX;
/// What pages may take whose list of elements goes beyond their first one.
const MAX_OPEN: usize = 32 << 20;

/// What pages lead to.
enum Leads {
    /// Other pages, and the roots of buckets.
    To(Vec<u64>),
    /// Nowhere: these are free.
    Free(Vec<u64>),
}

/// A page whose list of elements has not gone by yet.
struct Open {
    id: u64,
    bytes: Vec<u8>,
    needed: usize,
}

/// Knows the pages that have gone by.
#[derive(Default)]
pub struct Walk {
    page_size: usize,
    /// What is no whole page yet.
    rest: Vec<u8>,
    /// The number of the page that comes next.
    next: u64,
    metas: [Option<Newest>; 2],
    /// A bit for every page that is a leaf with nothing but keys and values.
    leaves: Bits,
    inner: HashMap<u64, Leads>,
    /// How many pages more those are that are longer than one.
    overflow: HashMap<u64, u32>,
    open: Vec<Open>,
}

/// What a meta page says.
struct Newest {
    transaction: u64,
    root: u64,
    free_list: u64,
    next: u64,
}

#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Whether it was not there before.
    fn insert(&mut self, at: u64) -> bool {
        // A database of 2^64 pages does not fit anywhere.
        let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    fn contains(&self, at: u64) -> bool {
        self.0.get((at / 64) as usize).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }
}

impl Walk {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if self.page_size == 0 {
            self.rest.extend(bytes);
            let Some(size) = page_size(&self.rest) else { return };
            self.page_size = size;
            let rest = std::mem::take(&mut self.rest);
            return self.feed(&rest);
        }
        if !self.rest.is_empty() {
            let missing = self.page_size - self.rest.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.rest.extend(now);
            bytes = later;
            if self.rest.len() < self.page_size {
                return;
            }
            let mut page = std::mem::take(&mut self.rest);
            self.page(&page);
            page.clear();
            self.rest = page;
        }
        let pages = bytes.chunks_exact(self.page_size);
        let rest = pages.remainder();
        pages.for_each(|page| self.page(page));
        self.rest.extend(rest);
    }

    fn page(&mut self, bytes: &[u8]) {
        let id = self.next;
        self.next += 1;
        if let Some(place) = usize::try_from(id).ok().and_then(|place| self.metas.get_mut(place)) {
            *place = newest(bytes);
            return;
        }
        for open in &mut self.open {
            let missing = open.needed - open.bytes.len();
            open.bytes.extend(&bytes[..missing.min(bytes.len())]);
        }
        while let Some(at) = self.open.iter().position(|open| open.bytes.len() == open.needed) {
            let Open { id, bytes, .. } = self.open.swap_remove(at);
            self.take(id, &bytes);
        }
        match table(bytes) {
            Some(needed) if needed <= bytes.len() => self.take(id, bytes),
            Some(needed) if u64_at(bytes, 0).ok() == Some(id) => {
                let held: usize = self.open.iter().map(|open| open.needed).sum();
                if held + needed <= MAX_OPEN {
                    self.open.push(Open { id, bytes: bytes.to_vec(), needed });
                }
            }
            _ => {}
        }
    }

    /// A page of which as much is here as its list of elements takes. What is not as it should be is not kept, and then missed.
    fn take(&mut self, id: u64, bytes: &[u8]) {
        let Ok((overflow, leads)) = leads(id, bytes, self.page_size as u64) else { return };
        if overflow > 0 {
            self.overflow.insert(id, overflow);
        }
        match leads {
            Some(leads) => drop(self.inner.insert(id, leads)),
            None => {
                self.leaves.insert(id);
            }
        }
    }

    /// Whether all that the newest transaction leads to is there, once. Returns how many pages that are.
    pub fn end(self) -> Result<u64, RestoreError> {
        if is_off(repair::ALL_PAGES) {
            return Ok(0);
        }
        if self.page_size == 0 || !self.rest.is_empty() {
            return Err(foreign("it does not start like one, or ends within a page"));
        }
        let [Some(one), Some(two)] = &self.metas else {
            return Err(foreign("one of its first two pages is damaged"));
        };
        let newest = if one.transaction > two.transaction { one } else { two };
        if newest.next > self.next {
            return Err(foreign("it is shorter than its header states"));
        }
        let (mut used, mut count) = (Bits::default(), 0);
        let mut ahead = vec![newest.root];
        let mut free: &[u64] = &[];
        if newest.free_list != NO_FREE_LIST {
            let Some(Leads::Free(listed)) = self.inner.get(&newest.free_list) else {
                return Err(damaged(newest.free_list));
            };
            free = listed;
            ahead.push(newest.free_list);
        }
        while let Some(id) = ahead.pop() {
            let more = u64::from(self.overflow.get(&id).copied().unwrap_or(0));
            let end = id.checked_add(more).filter(|last| id > 1 && *last < newest.next);
            let end = end.ok_or_else(|| foreign(format!("there is no page {id}")))?;
            for page in id..=end {
                count += 1;
                if !used.insert(page) {
                    return Err(foreign(format!("page {page} is used twice")));
                }
            }
            match self.inner.get(&id) {
                Some(Leads::To(pages)) => ahead.extend(pages),
                Some(Leads::Free(_)) if id == newest.free_list => {}
                None if self.leaves.contains(id) => {}
                _ => return Err(damaged(id)),
            }
        }
        match free.iter().find(|id| **id < 2 || **id >= newest.next || used.contains(**id)) {
            Some(id) => Err(foreign(format!("page {id} is in use or missing, but listed as free"))),
            None => Ok(count),
        }
    }
}

fn damaged(id: u64) -> RestoreError {
    foreign(format!("page {id} is damaged"))
}

fn page_size(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < HEADER + META {
        return None;
    }
    // What does not begin like a database is told at the end, and meanwhile is cut into pages of some size.
    let size = meta(bytes).map_or(4096, |meta| meta.page_size);
    let sensible = size.is_power_of_two() && (512..=1 << 16).contains(&size);
    Some(if sensible { size as usize } else { 4096 })
}

fn newest(bytes: &[u8]) -> Option<Newest> {
    let found = meta(bytes)?;
    let free_list = u64_at(bytes, HEADER + 32).ok()?;
    Some(Newest { transaction: found.transaction, root: found.root, free_list, next: found.next })
}

/// How far the list of a page's elements goes, if it is a page with such a list.
fn table(bytes: &[u8]) -> Option<usize> {
    let count = u16_at(bytes, 10).ok()?;
    match u16_at(bytes, 8).ok()? {
        BRANCH | LEAF => Some(HEADER + usize::from(count) * ELEMENT),
        FREE_LIST if count == MANY => {
            let count = usize::try_from(u64_at(bytes, HEADER).ok()?).ok()?;
            count.checked_add(1)?.checked_mul(8)?.checked_add(HEADER)
        }
        FREE_LIST => Some(HEADER + usize::from(count) * 8),
        _ => None,
    }
}

/// How many pages more a page is, and where it leads; a leaf of keys and values leads nowhere.
fn leads(id: u64, bytes: &[u8], page_size: u64) -> Result<(u32, Option<Leads>), RestoreError> {
    let (flags, overflow) = (u16_at(bytes, 8)?, u32_at(bytes, 12)?);
    if u64_at(bytes, 0)? != id {
        return Err(damaged(id));
    }
    if flags == FREE_LIST {
        let end = table(bytes).ok_or_else(|| damaged(id))?;
        let start = if u16_at(bytes, 10)? == MANY { HEADER + 8 } else { HEADER };
        let free: Result<Vec<u64>, _> = (start..end).step_by(8).map(|at| u64_at(bytes, at)).collect();
        return Ok((overflow, Some(Leads::Free(free?))));
    }
    let (count, whole) = (usize::from(u16_at(bytes, 10)?), (u64::from(overflow) + 1) * page_size);
    let heads = (HEADER + count * ELEMENT) as u64;
    if flags == BRANCH && count == 0 {
        return Err(damaged(id));
    }
    let mut to = Vec::new();
    let mut before: Option<&[u8]> = None;
    for number in 0..count {
        let at = HEADER + number * ELEMENT;
        let (offset, key_size, value_size) = match flags {
            BRANCH => (u32_at(bytes, at)?, u32_at(bytes, at + 4)?, 0),
            _ => (u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?),
        };
        let start = at as u64 + u64::from(offset);
        let middle = start + u64::from(key_size);
        let end = middle + u64::from(value_size);
        if start < heads || end > whole {
            return Err(damaged(id));
        }
        // What is on one of the pages behind this one has not gone by yet.
        let here = |from: u64, to: u64| bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?);
        let key = here(start, middle);
        if let (Some(before), Some(key)) = (before, key)
            && before >= key
        {
            return Err(damaged(id));
        }
        before = key;
        if flags == BRANCH {
            to.push(u64_at(bytes, at + 8)?);
        } else if u32_at(bytes, at)? & BUCKET != 0 {
            let value = here(middle, end).ok_or_else(|| damaged(id))?;
            match u64::from_le_bytes(array(value, 0)?) {
                // A small bucket stands in its value.
                0 => drop(parse(value.get(16..).unwrap_or_default())?),
                root => to.push(root),
            }
        }
    }
    Ok((overflow, (!to.is_empty()).then_some(Leads::To(to))))
}

/// A small database with a bucket `key` of several levels, for tests.
#[cfg(test)]
pub mod testing {
    use super::super::{Element, Page, bucket_value, render};
    use super::*;

    pub const PAGE: usize = 512;

    /// As many leaves as there are told, below as many branches as that takes.
    pub fn database(leaves: u64) -> Vec<u8> {
        let mut pages: Vec<Vec<u8>> = Vec::new();
        let mut add = |page: &Page| {
            let id = 2 + pages.len() as u64;
            pages.push(render(page, id, PAGE as u64).unwrap());
            assert_eq!(pages.last().unwrap().len(), PAGE);
            id
        };
        let pair = |key: Vec<u8>, value: Vec<u8>| Element { flags: 0, key, value, child: 0 };
        let bucket =
            |name: &str, root| Element { flags: BUCKET, key: name.into(), value: bucket_value(root, 0), child: 0 };
        let leaf = |number: u64| {
            let keys = (0..4_u64).map(|at| pair((number * 4 + at).to_be_bytes().to_vec(), vec![7; 60]));
            Page { flags: LEAF, elements: keys.collect() }
        };
        let mut level: Vec<(Vec<u8>, u64)> =
            (0..leaves.max(1)).map(|number| ((number * 4).to_be_bytes().to_vec(), add(&leaf(number)))).collect();
        while level.len() > 1 {
            let above = level.chunks(10).map(|some| {
                let element = |(key, child): &(Vec<u8>, u64)| Element {
                    flags: 0,
                    key: key.clone(),
                    value: vec![],
                    child: *child,
                };
                (some[0].0.clone(), add(&Page { flags: BRANCH, elements: some.iter().map(element).collect() }))
            });
            level = above.collect();
        }
        let keys = level[0].1;
        let meta = add(&Page { flags: LEAF, elements: vec![pair(b"term".to_vec(), vec![1])] });
        let root = add(&Page { flags: LEAF, elements: vec![bucket("key", keys), bucket("meta", meta)] });
        let next = 2 + pages.len() as u64;
        let mut bytes: Vec<u8> = (0..2_u64).flat_map(|place| meta_page(place, root, next, place)).collect();
        bytes.extend(pages.concat());
        bytes
    }

    fn meta_page(place: u64, root: u64, next: u64, transaction: u64) -> Vec<u8> {
        let mut bytes = [&place.to_le_bytes()[..], &super::super::META_PAGE.to_le_bytes(), &[0; 6]].concat();
        bytes.extend(super::super::MAGIC.to_le_bytes());
        bytes.extend(super::super::VERSION.to_le_bytes());
        bytes.extend((PAGE as u32).to_le_bytes());
        bytes.extend([0; 4]);
        for number in [root, 0, NO_FREE_LIST, next, transaction] {
            bytes.extend(number.to_le_bytes());
        }
        let sum = super::super::fnv(&bytes[HEADER..]);
        bytes.extend(sum.to_le_bytes());
        bytes.resize(PAGE, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    fn walked(bytes: &[u8], piece: usize) -> Result<u64, String> {
        let mut walk = Walk::default();
        bytes.chunks(piece).for_each(|piece| walk.feed(piece));
        walk.end().map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_database_is_walked_to_its_last_page_in_whatever_pieces_it_comes() {
        let bytes = database(300);
        let pages = (bytes.len() / PAGE) as u64 - 2;
        for piece in [1, 80, 511, 512, 513, 4096, bytes.len()] {
            assert_eq!(walked(&bytes, piece), Ok(pages), "{piece}");
        }
        assert_eq!(walked(&database(1), 4096), Ok(3));
    }

    #[test]
    fn an_inner_page_that_is_damaged_is_found() {
        let whole = database(300);
        // A leaf in the middle, a branch above it, the root of a bucket, and both metas.
        for page in [0, 1, 150, 310, whole.len() / PAGE - 2] {
            let mut bytes = whole.clone();
            bytes[page * PAGE..(page + 1) * PAGE].fill(0xa5);
            let why = walked(&bytes, 4096).unwrap_err();
            assert!(why.contains("damaged") || why.contains("does not start like one"), "{page}: {why}");
        }
    }

    #[test]
    fn pages_that_are_shared_exchanged_or_missing_are_found() {
        let whole = database(300);
        let branch = (2..whole.len() / PAGE).find(|page| u16_at(&whole, page * PAGE + 8).unwrap() == BRANCH).unwrap();
        let child = |number: usize| branch * PAGE + HEADER + number * ELEMENT + 8;
        let changed = |at: usize, id: u64| {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
            walked(&bytes, 4096).unwrap_err()
        };
        let first = u64_at(&whole, child(0)).unwrap();
        assert!(changed(child(1), first).contains("used twice"));
        assert!(changed(child(1), 100_000).contains("there is no page 100000"));
        assert!(changed(child(1), 1).contains("there is no page 1"));
        // Two leaves that have changed their places.
        let (one, two) = (5 * PAGE, 9 * PAGE);
        let mut bytes = whole.clone();
        let page = bytes[one..one + PAGE].to_vec();
        bytes.copy_within(two..two + PAGE, one);
        bytes[two..two + PAGE].copy_from_slice(&page);
        assert!(walked(&bytes, 4096).unwrap_err().contains("is damaged"));
        // Keys that are out of order.
        let mut bytes = whole.clone();
        let key = 7 * PAGE + HEADER + 4 * ELEMENT + 7;
        bytes[key] = 0xff;
        assert!(walked(&bytes, 4096).unwrap_err().contains("page 7 is damaged"));
        let cut = &whole[..whole.len() - PAGE];
        assert!(walked(cut, 4096).unwrap_err().contains("shorter"));
    }

    #[test]
    fn what_is_on_pages_that_are_free_does_not_matter() {
        let mut bytes = database(20);
        bytes.extend([0xff; PAGE]);
        // It says of itself that it is longer than the file, and that it is page 3.
        let mut stale = [0_u8; PAGE];
        stale[0] = 3;
        stale[8] = 2;
        stale[10..16].fill(0xff);
        bytes.extend(stale);
        assert!(walked(&bytes, 4096).is_ok());
    }
}
