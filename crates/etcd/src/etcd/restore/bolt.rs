//! The file format of etcd's database, as far as a restore needs it: reads buckets, and puts small ones in the place of others.
//!
//! A file of pages. Two of them are metas, of which the one with the higher transaction counts; it names the root, a tree whose
//! values are buckets, each a tree of its own. Nothing is overwritten: what changes goes to new pages at the end, and the other
//! meta, written last, makes it count. Pages that nobody points to any more are free, which etcd finds out when it opens the file,
//! since it keeps no list of them.
//!
//! A file may come from anybody, so what it says of itself is held against what it is before memory is taken for it: pages lie inside
//! of the file, no page is reached twice, elements of a page do not overlap, and a look has a limit of bytes.

mod put;
mod walk;

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
};

use super::RestoreError;
pub use walk::Walk;
#[cfg(test)]
pub use walk::testing;

pub(super) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const META: usize = 64;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META_PAGE: u16 = 0x04;
/// The flag of a value that is a bucket.
const BUCKET: u32 = 0x01;
const NO_FREE_LIST: u64 = u64::MAX;
/// A tree of this depth would have more pages than a file can hold.
const MAX_DEPTH: usize = 32;
/// What a bucket may take that is read as a whole.
const MAX_SMALL: u64 = 64 << 20;
/// What the pages from a root to a leaf may take: a leaf has two values of the largest request that anybody lets etcd take.
const MAX_PATH: u64 = 256 << 20;
/// Those of the machines that etcd runs on.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=(64 << 10);

pub(super) struct Bolt {
    file: File,
    page_size: u64,
    /// The root's buckets by name: their values.
    buckets: Pairs,
    sequence: u64,
    /// The first page that is not used yet.
    next: u64,
    transaction: u64,
}

/// What a look at some pages may still take, and has seen.
struct Look {
    seen: HashSet<u64>,
    /// How many pages more.
    left: u64,
}

impl Look {
    /// Each page once: a tree has one way to it, and with more a few pages stand for any number of them.
    fn at(&mut self, id: u64, pages: u64) -> Result<(), RestoreError> {
        let left = self.left.checked_sub(pages);
        self.left = left.ok_or_else(|| foreign("an object is too large to read at once"))?;
        // Few enough, as was just seen.
        match (id..id + pages).all(|page| self.seen.insert(page)) {
            true => Ok(()),
            false => Err(foreign(format!("page {id} is used twice"))),
        }
    }
}

/// A page, or what stands inside a value like one.
struct Page {
    flags: u16,
    elements: Vec<Element>,
}

struct Element {
    flags: u32,
    key: Vec<u8>,
    /// Of a leaf.
    value: Vec<u8>,
    /// Of a branch.
    child: u64,
}

fn foreign(why: impl Into<String>) -> RestoreError {
    RestoreError::Foreign(why.into())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], RestoreError> {
    let found = bytes.get(at..at + N).and_then(|slice| slice.try_into().ok());
    found.ok_or_else(|| foreign("a page ends too early"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, RestoreError> {
    Ok(u16::from_le_bytes(array(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, RestoreError> {
    Ok(u32::from_le_bytes(array(bytes, at)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, RestoreError> {
    Ok(u64::from_le_bytes(array(bytes, at)?))
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a meta page says, if it is one that counts.
struct Meta {
    page_size: u64,
    root: u64,
    sequence: u64,
    next: u64,
    transaction: u64,
}

fn meta(bytes: &[u8]) -> Option<Meta> {
    let meta = bytes.get(HEADER..HEADER + META)?;
    let sound = u32_at(meta, 0).ok()? == MAGIC && u32_at(meta, 4).ok()? == VERSION;
    let counts = sound && u64_at(meta, 56).ok()? == fnv(&meta[..56]);
    counts.then_some(())?;
    Some(Meta {
        page_size: u64::from(u32_at(meta, 8).ok()?),
        root: u64_at(meta, 16).ok()?,
        sequence: u64_at(meta, 24).ok()?,
        next: u64_at(meta, 40).ok()?,
        transaction: u64_at(meta, 48).ok()?,
    })
}

impl Bolt {
    pub fn open(file: File) -> Result<Self, RestoreError> {
        let length = file.metadata()?.len();
        let read_meta = |at: u64| {
            let mut bytes = vec![0; HEADER + META];
            file.read_exact_at(&mut bytes, at).ok().and_then(|()| meta(&bytes))
        };
        let first = read_meta(0);
        // The second one is a page further; how large pages are, the first says, or it has to be tried.
        let sizes =
            first.as_ref().map_or_else(|| (9..=16).map(|power| 1 << power).collect(), |meta| vec![meta.page_size]);
        let second = sizes.into_iter().find_map(|size| read_meta(size).filter(|meta| meta.page_size == size));
        let meta = [first, second].into_iter().flatten().max_by_key(|meta| meta.transaction);
        let meta = meta.ok_or_else(|| foreign("it does not start like one"))?;
        if !meta.page_size.is_power_of_two()
            || !PAGE_SIZES.contains(&meta.page_size)
            || meta.next.saturating_mul(meta.page_size) > length
        {
            return Err(foreign("it is shorter than its header states"));
        }
        let mut bolt = Self {
            file,
            page_size: meta.page_size,
            buckets: Pairs::new(),
            sequence: meta.sequence,
            next: meta.next,
            transaction: meta.transaction,
        };
        let mut elements = Vec::new();
        bolt.collect(meta.root, 0, &mut bolt.look(MAX_SMALL), &mut elements)?;
        if elements.iter().any(|element| element.flags & BUCKET == 0) {
            return Err(foreign("its root contains something other than buckets"));
        }
        bolt.buckets = elements.into_iter().map(|element| (element.key, element.value)).collect();
        match bolt.buckets.contains_key(&b"key"[..]) && bolt.buckets.contains_key(&b"meta"[..]) {
            true => Ok(bolt),
            false => Err(foreign("it has no bucket `key`")),
        }
    }

    /// A look at some pages, which together have at most so many bytes.
    fn look(&self, bytes: u64) -> Look {
        Look { seen: HashSet::new(), left: bytes / self.page_size }
    }

    fn page(&self, id: u64, look: &mut Look) -> Result<Page, RestoreError> {
        if id < 2 || id >= self.next {
            return Err(foreign(format!("there is no page {id}")));
        }
        let at = id * self.page_size;
        let mut header = [0; HEADER];
        self.file.read_exact_at(&mut header, at)?;
        let pages = u64::from(u32_at(&header, 12)?) + 1;
        if u64_at(&header, 0)? != id || pages > self.next - id {
            return Err(foreign(format!("page {id} is damaged")));
        }
        look.at(id, pages)?;
        // No more than the look may take.
        let mut bytes = vec![0; usize::try_from(pages * self.page_size).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, at)?;
        parse(&bytes)
    }

    /// All elements of a tree's leaves, in order.
    fn collect(&self, id: u64, depth: usize, look: &mut Look, into: &mut Vec<Element>) -> Result<(), RestoreError> {
        let page = self.page(id, look)?;
        if depth > MAX_DEPTH {
            return Err(foreign("a tree is too deep"));
        }
        for element in page.elements {
            match page.flags {
                BRANCH => self.collect(element.child, depth + 1, look, into)?,
                _ => into.push(element),
            }
        }
        Ok(())
    }

    fn bucket(&self, name: &str) -> Result<&[u8], RestoreError> {
        let value = self.buckets.get(name.as_bytes());
        value.map(Vec::as_slice).ok_or_else(|| foreign(format!("it has no bucket `{name}`")))
    }

    /// The pages from a bucket's root to its last leaf. A small bucket stands in its value itself.
    fn last_path(&self, name: &str) -> Result<Vec<Page>, RestoreError> {
        let value = self.bucket(name)?;
        let mut id = u64_at(value, 0)?;
        if id == 0 {
            return Ok(vec![parse(value.get(16..).unwrap_or_default())?]);
        }
        let (mut path, mut look) = (Vec::new(), self.look(MAX_PATH));
        loop {
            let page = self.page(id, &mut look)?;
            let last = page.elements.last().map(|element| element.child);
            let is_leaf = page.flags == LEAF;
            path.push(page);
            match last {
                _ if is_leaf => return Ok(path),
                Some(child) if path.len() < MAX_DEPTH => id = child,
                _ => return Err(foreign(format!("the bucket `{name}` is damaged"))),
            }
        }
    }

    /// What is in a bucket that fits into memory.
    pub fn small_bucket(&self, name: &str) -> Result<Pairs, RestoreError> {
        let value = self.bucket(name)?;
        let mut elements = Vec::new();
        match u64_at(value, 0)? {
            0 => elements = parse(value.get(16..).unwrap_or_default())?.elements,
            root => self.collect(root, 0, &mut self.look(MAX_SMALL), &mut elements)?,
        }
        Ok(elements.into_iter().map(|element| (element.key, element.value)).collect())
    }

    /// The last revision: keys of `key` are revisions, in order.
    pub fn revision(&self) -> Result<i64, RestoreError> {
        let path = self.last_path("key")?;
        let last = path.last().and_then(|leaf| leaf.elements.last());
        match last {
            Some(element) => Ok(i64::from_be_bytes(array(&element.key, 0)?)),
            // As etcd has it before the first write.
            None => Ok(1),
        }
    }

    /// Puts a key behind all others of a bucket, with an empty value. The pages on the way there are written anew.
    pub fn append_last(&mut self, name: &str, key: Vec<u8>) -> Result<(), RestoreError> {
        let mut path = self.last_path(name)?;
        let Some(mut leaf) = path.pop() else { return Err(foreign("a tree without a root")) };
        if leaf.elements.last().is_some_and(|last| last.key >= key) {
            return Err(foreign(format!("the bucket `{name}` has a later key")));
        }
        leaf.elements.push(Element { flags: 0, key, value: Vec::new(), child: 0 });
        let mut child = self.write(&leaf)?;
        while let Some(mut branch) = path.pop() {
            if let Some(last) = branch.elements.last_mut() {
                last.child = child;
            }
            child = self.write(&branch)?;
        }
        let sequence = u64_at(self.bucket(name)?, 8)?;
        self.buckets.insert(name.into(), bucket_value(child, sequence));
        Ok(())
    }

    /// Puts a bucket of these in the place of the one of that name.
    pub fn replace(&mut self, name: &str, pairs: &Pairs) -> Result<(), RestoreError> {
        let element =
            |(key, value): (&Vec<u8>, &Vec<u8>)| Element { flags: 0, key: key.clone(), value: value.clone(), child: 0 };
        let page = Page { flags: LEAF, elements: pairs.iter().map(element).collect() };
        let root = self.write(&page)?;
        self.buckets.insert(name.into(), bucket_value(root, 0));
        Ok(())
    }

    /// Writes a page behind all others.
    fn write(&mut self, page: &Page) -> Result<u64, RestoreError> {
        let id = self.next;
        let bytes = render(page, id, self.page_size)?;
        self.file.write_all_at(&bytes, id * self.page_size)?;
        self.next += bytes.len() as u64 / self.page_size;
        Ok(id)
    }

    /// From here on the changes count.
    pub fn commit(mut self) -> Result<(), RestoreError> {
        let buckets = std::mem::take(&mut self.buckets);
        let element = |(key, value): (Vec<u8>, Vec<u8>)| Element { flags: BUCKET, key, value, child: 0 };
        let root = Page { flags: LEAF, elements: buckets.into_iter().map(element).collect() };
        let root = self.write(&root)?;
        self.file.sync_all()?;
        self.transaction += 1;
        let place = self.transaction % 2;
        let mut bytes = Vec::with_capacity(HEADER + META);
        bytes.extend(place.to_le_bytes());
        bytes.extend(META_PAGE.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(VERSION.to_le_bytes());
        // It was read from four bytes.
        bytes.extend(u32::try_from(self.page_size).unwrap_or_default().to_le_bytes());
        bytes.extend([0; 4]);
        for number in [root, self.sequence, NO_FREE_LIST, self.next, self.transaction] {
            bytes.extend(number.to_le_bytes());
        }
        let sum = fnv(&bytes[HEADER..]);
        bytes.extend(sum.to_le_bytes());
        self.file.write_all_at(&bytes, place * self.page_size)?;
        Ok(self.file.sync_all()?)
    }
}

fn bucket_value(root: u64, sequence: u64) -> Vec<u8> {
    [root.to_le_bytes(), sequence.to_le_bytes()].concat()
}

fn parse(bytes: &[u8]) -> Result<Page, RestoreError> {
    let flags = u16_at(bytes, 8)?;
    if flags != BRANCH && flags != LEAF {
        return Err(foreign("a page of another kind than expected"));
    }
    let mut elements = Vec::new();
    let count = usize::from(u16_at(bytes, 10)?);
    // Heads come first, then the bodies in the same order: so no byte is copied twice.
    let mut free = HEADER + count * ELEMENT;
    for number in 0..count {
        let at = HEADER + number * ELEMENT;
        let (flags_of, offset, key_size, value_size, child) = match flags {
            BRANCH => (0, u32_at(bytes, at)?, u32_at(bytes, at + 4)?, 0, u64_at(bytes, at + 8)?),
            _ => (u32_at(bytes, at)?, u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?, 0),
        };
        let start = at + offset as usize;
        let middle = start + key_size as usize;
        let end = middle + value_size as usize;
        if start < free {
            return Err(foreign("the elements of a page overlap"));
        }
        free = end;
        let slice =
            |from: usize, to: usize| bytes.get(from..to).ok_or_else(|| foreign("an element outside of its page"));
        elements.push(Element {
            flags: flags_of,
            key: slice(start, middle)?.to_vec(),
            value: slice(middle, end)?.to_vec(),
            child,
        });
    }
    Ok(Page { flags, elements })
}

fn render(page: &Page, id: u64, page_size: u64) -> Result<Vec<u8>, RestoreError> {
    let too_large = |_| foreign("a page would be too large");
    let mut heads: Vec<u8> = Vec::new();
    let mut bodies: Vec<u8> = Vec::new();
    let all = page.elements.len() * ELEMENT;
    for (number, element) in page.elements.iter().enumerate() {
        // From the place of the element's own head.
        let offset = u32::try_from(all - number * ELEMENT + bodies.len()).map_err(too_large)?;
        let key_size = u32::try_from(element.key.len()).map_err(too_large)?;
        let value_size = u32::try_from(element.value.len()).map_err(too_large)?;
        match page.flags {
            BRANCH => {
                heads.extend(offset.to_le_bytes());
                heads.extend(key_size.to_le_bytes());
                heads.extend(element.child.to_le_bytes());
            }
            _ => [element.flags, offset, key_size, value_size]
                .iter()
                .for_each(|number| heads.extend(number.to_le_bytes())),
        }
        bodies.extend(&element.key);
        bodies.extend(&element.value);
    }
    let count = u16::try_from(page.elements.len()).map_err(too_large)?;
    let pages = ((HEADER + heads.len() + bodies.len()) as u64).div_ceil(page_size);
    let mut bytes = Vec::new();
    bytes.extend(id.to_le_bytes());
    bytes.extend(page.flags.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(u32::try_from(pages - 1).map_err(too_large)?.to_le_bytes());
    bytes.extend(heads);
    bytes.extend(bodies);
    bytes.resize(usize::try_from(pages * page_size).map_err(too_large)?, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4096;

    /// A file of pages whose root is page 2. Its metas are made for it.
    struct Made(Vec<u8>);

    impl Made {
        fn new(pages: &[(u64, Page)]) -> Self {
            let mut bytes = vec![0; 2 * SIZE as usize];
            for (id, page) in pages {
                bytes.resize((id * SIZE) as usize, 0);
                bytes.extend(render(page, *id, SIZE).unwrap());
            }
            let next = bytes.len() as u64 / SIZE;
            for place in 0..2_u64 {
                let at = (place * SIZE) as usize + HEADER;
                let mut meta = Vec::new();
                [MAGIC, VERSION, SIZE as u32, 0].iter().for_each(|it| meta.extend(it.to_le_bytes()));
                [2, 0, NO_FREE_LIST, next, place].iter().for_each(|it| meta.extend(it.to_le_bytes()));
                let sum = fnv(&meta);
                meta.extend(sum.to_le_bytes());
                bytes[at..at + META].copy_from_slice(&meta);
            }
            Self(bytes)
        }

        fn open(&self) -> Result<Bolt, RestoreError> {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&self.0, 0).unwrap();
            Bolt::open(file)
        }

        fn refusal(&self) -> String {
            self.open().err().expect("it is refused").to_string()
        }
    }

    fn leaf(pairs: &[(&str, Vec<u8>)], flags: u32) -> Page {
        let element = |(key, value): &(&str, Vec<u8>)| Element {
            flags,
            key: key.as_bytes().to_vec(),
            value: value.clone(),
            child: 0,
        };
        Page { flags: LEAF, elements: pairs.iter().map(element).collect() }
    }

    fn branch(children: &[u64]) -> Page {
        let element = |child: &u64| Element { flags: 0, key: Vec::new(), value: Vec::new(), child: *child };
        Page { flags: BRANCH, elements: children.iter().map(element).collect() }
    }

    fn root() -> Page {
        leaf(&[("key", bucket_value(3, 0)), ("meta", bucket_value(4, 0))], BUCKET)
    }

    #[test]
    fn a_sound_file_is_read() {
        let pages = [(2, root()), (3, leaf(&[("k", vec![1; 9000])], 0)), (6, leaf(&[("m", vec![2])], 0))];
        let mut pages = Vec::from(pages);
        pages[0].1 = leaf(&[("key", bucket_value(3, 0)), ("meta", bucket_value(6, 0))], BUCKET);
        let bolt = Made::new(&pages).open().unwrap();
        assert_eq!(bolt.small_bucket("key").unwrap()[&b"k"[..]].len(), 9000);
        assert_eq!(bolt.small_bucket("meta").unwrap()[&b"m"[..]], [2]);
    }

    /// 31 levels of two ways to the same page are two thousand million visits, and four kilobytes each.
    #[test]
    fn a_page_is_reached_in_one_way_only() {
        let mut pages: Vec<(u64, Page)> = (2..33).map(|id| (id, branch(&[id + 1, id + 1]))).collect();
        pages.push((33, root()));
        assert!(Made::new(&pages).refusal().contains("page 33 is used twice"));
        // Nor do two pages share one.
        let pages = [(2, branch(&[3, 4])), (3, leaf(&[("k", vec![1; 9000])], BUCKET))];
        let mut made = Made::new(&pages);
        let inner = render(&root(), 4, SIZE).unwrap();
        made.0[4 * SIZE as usize..5 * SIZE as usize].copy_from_slice(&inner);
        assert!(made.refusal().contains("page 4 is used twice"));
        // And a circle has no end.
        assert!(Made::new(&[(2, branch(&[2]))]).refusal().contains("page 2 is used twice"));
    }

    /// A mebibyte with 65535 elements that all have all of it is sixty-four gibibytes.
    #[test]
    fn elements_that_overlap_are_refused() {
        const COUNT: usize = 65_535;
        let all = HEADER + COUNT * ELEMENT;
        let mut bytes = render(&leaf(&[("k", vec![0; 2 * COUNT * ELEMENT])], BUCKET), 2, SIZE).unwrap();
        bytes[10..12].copy_from_slice(&(COUNT as u16).to_le_bytes());
        for number in 0..COUNT {
            let at = HEADER + number * ELEMENT;
            let (offset, size) = ((all - at) as u32, (bytes.len() - all) as u32);
            let head: Vec<u8> = [BUCKET, offset, 0, size].iter().flat_map(|it| it.to_le_bytes()).collect();
            bytes[at..at + ELEMENT].copy_from_slice(&head);
        }
        assert!(parse(&bytes).err().unwrap().to_string().contains("overlap"));
        let mut made = Made::new(&[(2, leaf(&[("k", vec![0; bytes.len() - 64])], BUCKET))]);
        made.0[2 * SIZE as usize..2 * SIZE as usize + bytes.len()].copy_from_slice(&bytes);
        assert!(made.refusal().contains("overlap"));
    }

    #[test]
    fn pages_that_are_larger_than_their_file_or_than_a_look_are_refused() {
        let mut made = Made::new(&[(2, root())]);
        let overflow = 2 * SIZE as usize + 12;
        made.0[overflow..overflow + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(made.refusal().contains("page 2 is damaged"));
        let large = MAX_SMALL as usize + 1;
        assert!(Made::new(&[(2, leaf(&[("k", vec![0; large])], BUCKET))]).refusal().contains("too large"));
    }

    #[test]
    fn whatever_bytes_are_there_nothing_breaks() {
        let made = Made::new(&[(2, root()), (3, leaf(&[("k", vec![1; 40])], 0)), (4, leaf(&[("m", vec![2])], 0))]);
        for at in 2 * SIZE as usize..made.0.len() {
            if made.0[at] == 0 && at % 7 != 0 {
                continue;
            }
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = Made(made.0.clone());
                changed.0[at] = value;
                if let Ok(bolt) = changed.open() {
                    let _ = (bolt.revision(), bolt.small_bucket("meta"), bolt.small_bucket("key"));
                }
            }
        }
    }
}
