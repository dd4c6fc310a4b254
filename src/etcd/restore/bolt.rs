//! The file format of etcd's database, as far as a restore needs it: reads buckets, and puts small ones in the place of others.
//!
//! A file of pages. Two of them are metas, of which the one with the higher transaction counts; it names the root, a tree whose
//! values are buckets, each a tree of its own. Nothing is overwritten: what changes goes to new pages at the end, and the other
//! meta, written last, makes it count. Pages that nobody points to any more are free, which etcd finds out when it opens the file,
//! since it keeps no list of them.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

use super::RestoreError;

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
/// What a bucket may hold that is read as a whole.
const MAX_SMALL: u64 = 64 << 20;
/// A page with a value of etcd's largest request and some more.
const MAX_PAGE: u64 = 1 << 30;

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
            first.as_ref().map_or_else(|| (9..17).map(|power| 1 << power).collect(), |meta| vec![meta.page_size]);
        let second = sizes.into_iter().find_map(|size| read_meta(size).filter(|meta| meta.page_size == size));
        let meta = [first, second].into_iter().flatten().max_by_key(|meta| meta.transaction);
        let meta = meta.ok_or_else(|| foreign("it does not begin like one"))?;
        if !meta.page_size.is_power_of_two()
            || meta.page_size < 512
            || meta.next.saturating_mul(meta.page_size) > length
        {
            return Err(foreign("it is shorter than it says"));
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
        bolt.collect(meta.root, 0, &mut 0, &mut elements)?;
        if elements.iter().any(|element| element.flags & BUCKET == 0) {
            return Err(foreign("its root holds something else than buckets"));
        }
        bolt.buckets = elements.into_iter().map(|element| (element.key, element.value)).collect();
        match bolt.buckets.contains_key(&b"key"[..]) && bolt.buckets.contains_key(&b"meta"[..]) {
            true => Ok(bolt),
            false => Err(foreign("it has no bucket `key`")),
        }
    }

    fn page(&self, id: u64) -> Result<Page, RestoreError> {
        if id < 2 || id >= self.next {
            return Err(foreign(format!("there is no page {id}")));
        }
        let at = id * self.page_size;
        let mut header = [0; HEADER];
        self.file.read_exact_at(&mut header, at)?;
        let size = (u64::from(u32_at(&header, 12)?) + 1) * self.page_size;
        if u64_at(&header, 0)? != id || size > MAX_PAGE {
            return Err(foreign(format!("page {id} is damaged")));
        }
        // Below a gibibyte, as was just seen.
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, at)?;
        parse(&bytes)
    }

    /// All elements of a tree's leaves, in order.
    fn collect(&self, id: u64, depth: usize, size: &mut u64, into: &mut Vec<Element>) -> Result<(), RestoreError> {
        let page = self.page(id)?;
        if depth > MAX_DEPTH || *size > MAX_SMALL {
            return Err(foreign("a tree is too large"));
        }
        for element in page.elements {
            *size += (element.key.len() + element.value.len()) as u64;
            match page.flags {
                BRANCH => self.collect(element.child, depth + 1, size, into)?,
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
        let mut path = Vec::new();
        loop {
            let page = self.page(id)?;
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
            root => self.collect(root, 0, &mut 0, &mut elements)?,
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
    for number in 0..usize::from(u16_at(bytes, 10)?) {
        let at = HEADER + number * ELEMENT;
        let (flags_of, offset, key_size, value_size, child) = match flags {
            BRANCH => (0, u32_at(bytes, at)?, u32_at(bytes, at + 4)?, 0, u64_at(bytes, at + 8)?),
            _ => (u32_at(bytes, at)?, u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?, 0),
        };
        let start = at + offset as usize;
        let middle = start + key_size as usize;
        let end = middle + value_size as usize;
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
