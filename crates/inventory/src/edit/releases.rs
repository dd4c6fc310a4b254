//! One release more in `etcd_releases`.

use super::{Edit, EditError, apply, flow, line_end, line_start, place_of, scalar};
use crate::{
    model::{Value, ValueMap, Version},
    source::{Diagnostics, Key, Kind, Map, Node, Sources, parse},
};

const SECTION: &str = "etcd_releases";

/// The releases that a file lists itself, as written; nothing if it has no such section, or cannot be read.
pub fn releases(text: &str) -> Option<Vec<(Version, ValueMap)>> {
    let root = tree(text)?;
    let section = root.as_map()?.get(SECTION)?;
    let entries = section.as_map().map(Map::iter).into_iter().flatten();
    let entry = |(key, node): &(Key, Node)| Some((key.name.parse().ok()?, node.to_value().as_object()?.clone()));
    Some(entries.filter_map(entry).collect())
}

/// Whether the file describes clusters.
pub fn has_clusters(text: &str) -> bool {
    tree(text).is_some_and(|root| root.as_map().is_some_and(|map| map.get("clusters").is_some()))
}

/// The lines of an entry, for a person to write.
pub fn release_entry(version: Version, body: &ValueMap) -> String {
    block("  ", "\n", version, body)
}

/// The text with one release more. Whatever else it says, it says still; or nothing is changed.
pub fn with_release(text: &str, version: Version, body: &ValueMap) -> Result<String, EditError> {
    let root = tree(text).ok_or(EditError::NotPlain("it is not YAML that can be edited"))?;
    let mut wanted = match root.to_value() {
        Value::Object(map) => map,
        Value::Null => ValueMap::new(),
        _ => return Err(EditError::NotPlain("it is not a mapping")),
    };
    let listed = wanted.entry(SECTION).or_insert(Value::Null);
    if listed.is_null() {
        *listed = ValueMap::new().into();
    }
    let listed = listed.as_object_mut().ok_or(EditError::NotPlain("`etcd_releases` is not a mapping"))?;
    listed.insert(version.to_string(), body.clone().into());
    let new = apply(text, &edits(text, &root, version, body)?);
    let is_right = |new: &String| tree(new).is_some_and(|root| root.to_value() == Value::Object(wanted));
    new.filter(is_right).ok_or(EditError::NotPlain("its form leaves no certain place for a new entry"))
}

fn tree(text: &str) -> Option<Node> {
    let mut sources = Sources::default();
    let file = sources.add("inventory", text);
    let mut diagnostics = Diagnostics::default();
    let root = parse(&sources, file, &mut diagnostics);
    match (root, diagnostics.has_errors()) {
        (root, false) => Some(root.unwrap_or_else(|| Node::new(crate::model::Span::new(file, 0, 0), Kind::Null))),
        _ => None,
    }
}

fn edits(text: &str, root: &Node, version: Version, body: &ValueMap) -> Result<Vec<Edit>, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let Some((key, node)) = root.as_map().and_then(|map| map.entry(SECTION)) else {
        return Ok(vec![at_the_end(text, newline, version, body)]);
    };
    let key_end = key.span.end as usize;
    let (start, end) = place_of(text, key_end, node)?;
    match &node.kind {
        Kind::Null => {
            // It may say `null`, and a comment may follow.
            let word = Edit { start, end, text: String::new() };
            Ok(vec![word, below(text, end, newline, &block("  ", newline, version, body))])
        }
        Kind::Map(map) if text[start..].starts_with('{') => flow_edit(text, start, map, version, body),
        Kind::Map(map) => block_edit(text, key_end, map, newline, version, body),
        _ => Err(EditError::NotPlain("`etcd_releases` is not a mapping")),
    }
}

fn at_the_end(text: &str, newline: &str, version: Version, body: &ValueMap) -> Edit {
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => newline,
        _ => &newline.repeat(2),
    };
    let entry = block("  ", newline, version, body);
    Edit { start: text.len(), end: text.len(), text: format!("{gap}{SECTION}:{newline}{entry}") }
}

fn flow_edit(text: &str, open: usize, map: &Map, version: Version, body: &ValueMap) -> Result<Vec<Edit>, EditError> {
    let entry = format!("{version}: {}", flow(&Value::Object(body.clone())));
    let (at, text) = match before(map, version) {
        Some((key, node)) => (place_of(text, key.span.end as usize, node)?.1, format!(", {entry}")),
        None if map.is_empty() => (open + 1, format!(" {entry} ")),
        None => (open + 1, format!(" {entry},")),
    };
    Ok(vec![Edit { start: at, end: at, text }])
}

fn block_edit(
    text: &str,
    key_end: usize,
    map: &Map,
    newline: &str,
    version: Version,
    body: &ValueMap,
) -> Result<Vec<Edit>, EditError> {
    let first = map.iter().next().map_or(key_end, |(key, _)| key.span.start as usize);
    let indent = &text[line_start(text, first)..first];
    if indent.is_empty() || !indent.bytes().all(|byte| byte == b' ') {
        return Err(EditError::NotPlain("`etcd_releases` is not a mapping with a line for each release"));
    }
    let at = match before(map, version) {
        Some((key, node)) => place_of(text, key.span.end as usize, node)?.1,
        // Right below the name of the section: a comment further down belongs to what follows it.
        None => key_end,
    };
    Ok(vec![below(text, at, newline, &block(indent, newline, version, body))])
}

/// The entry that the new one comes behind. Lists that begin with the newest stay such lists.
fn before(map: &Map, version: Version) -> Option<&(Key, Node)> {
    let of = |entry: &(Key, Node)| entry.0.name.parse::<Version>().ok();
    let listed: Vec<Version> = map.iter().filter_map(of).collect();
    let falls = listed.len() > 1 && listed.is_sorted_by(|first, second| first > second);
    let entries = map.iter().filter_map(|entry| Some((of(entry)?, entry)));
    let found = match falls {
        true => entries.filter(|(other, _)| *other > version).min_by_key(|(other, _)| *other),
        false => entries.filter(|(other, _)| *other < version).max_by_key(|(other, _)| *other),
    };
    found.map(|(_, entry)| entry)
}

/// New lines below the one that this is on.
fn below(text: &str, at: usize, newline: &str, lines: &str) -> Edit {
    let end = line_end(text, at);
    let (end, text) = match text.get(end..end + 1) {
        Some(_) => (end + 1, lines.to_owned()),
        None => (end, format!("{newline}{lines}")),
    };
    Edit { start: end, end, text }
}

fn block(indent: &str, newline: &str, version: Version, body: &ValueMap) -> String {
    let fields = body.iter().map(|(name, value)| format!("{indent}  {}: {}{newline}", scalar(name), flow(value)));
    format!("{indent}{version}:{newline}{}", fields.collect::<String>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SUM: &str = "aa11";

    fn body() -> ValueMap {
        json!({ "url": "https://x.example/e.tar.gz", "sha256": SUM }).as_object().unwrap().clone()
    }

    fn added(text: &str, version: &str) -> String {
        with_release(text, version.parse().unwrap(), &body()).unwrap()
    }

    fn lines(version: &str) -> String {
        format!("  {version}:\n    url: \"https://x.example/e.tar.gz\"\n    sha256: aa11\n")
    }

    const BLOCK: &str = "\
# ours
etcd_releases:   # each with its checksum
  # for the old cluster
  3.4.45: { file: bin/etcd-3.4.45, sha256: bb }   # keep

  3.6.15:
    url: https://x.example/3.6.15.tar.gz   # the mirror
    sha256: cc

clusters: { prod: { etcd: { version: 3.4.45 } } }
";

    #[test]
    fn versions_stay_in_order_and_comments_where_they_are() {
        let after = |line: &str, version: &str| BLOCK.replace(line, &format!("{line}{}", lines(version)));
        assert_eq!(added(BLOCK, "3.5.34"), after("bb }   # keep\n", "3.5.34"));
        assert_eq!(added(BLOCK, "3.7.2"), after("    sha256: cc\n", "3.7.2"));
        assert_eq!(added(BLOCK, "3.4.0"), after("each with its checksum\n", "3.4.0"));
        let falling = "etcd_releases:\n  3.7.2: { sha256: a }\n  3.5.34: { sha256: b }\nx: 1\n";
        assert_eq!(
            added(falling, "3.6.15"),
            falling.replace("sha256: a }\n", &format!("sha256: a }}\n{}", lines("3.6.15")))
        );
        assert_eq!(added(falling, "3.4.45"), falling.replace("x: 1\n", &format!("{}x: 1\n", lines("3.4.45"))));
        assert_eq!(
            added(falling, "3.7.3"),
            falling.replace("etcd_releases:\n", &format!("etcd_releases:\n{}", lines("3.7.3")))
        );
    }

    #[test]
    fn a_section_that_is_missing_or_empty_gets_its_first() {
        let section = format!("etcd_releases:\n{}", lines("3.6.15"));
        assert_eq!(added("", "3.6.15"), section);
        assert_eq!(added("clusters: {}", "3.6.15"), format!("clusters: {{}}\n\n{section}"));
        assert_eq!(added("clusters: {}\n", "3.6.15"), format!("clusters: {{}}\n\n{section}"));
        for empty in ["etcd_releases:", "etcd_releases: null", "etcd_releases: ~"] {
            let text = added(&format!("{empty}   # none yet\nx: 1\n"), "3.6.15");
            assert!(text.contains(&format!("   # none yet\n{}x: 1\n", lines("3.6.15"))), "{text}");
        }
        assert_eq!(added("etcd_releases:", "3.6.15"), section);
        let flow = "{ url: \"https://x.example/e.tar.gz\", sha256: aa11 }";
        assert_eq!(added("etcd_releases: {}\n", "3.6.15"), format!("etcd_releases: {{ 3.6.15: {flow} }}\n"));
        let some = "etcd_releases: { 3.5.34: { sha256: b } } # x\n";
        assert_eq!(added(some, "3.6.15"), some.replace("b } }", &format!("b }}, 3.6.15: {flow} }}")));
        assert_eq!(added(some, "3.4.45"), some.replace("{ 3.5", &format!("{{ 3.4.45: {flow}, 3.5")));
    }

    #[test]
    fn line_ends_of_windows_stay() {
        let text = BLOCK.replace('\n', "\r\n");
        for version in ["3.4.0", "3.5.34", "3.7.2"] {
            assert_eq!(added(&text, version), added(BLOCK, version).replace('\n', "\r\n"), "{version}");
        }
        let none = added("x: 1\r\n", "3.6.15");
        assert_eq!(none, format!("x: 1\n\netcd_releases:\n{}", lines("3.6.15")).replace('\n', "\r\n"));
    }

    #[test]
    fn what_leaves_no_certain_place_is_refused() {
        for text in [
            "- a\n",
            "{ clusters: {} }\n",
            "etcd_releases: 3\n",
            "x: &r { 3.4.45: { sha256: a } }\netcd_releases: *r\n",
            "etcd_releases: \"{{ releases }}\"\n",
            "x: [\n",
            "clusters: {}\n...\n",
        ] {
            let said = with_release(text, "3.6.15".parse().unwrap(), &body());
            assert!(matches!(said, Err(EditError::NotPlain(_))), "{text}: {said:?}");
        }
    }

    #[test]
    fn the_releases_of_a_file_are_read() {
        let found = releases(BLOCK).unwrap();
        let names: Vec<String> = found.iter().map(|(version, _)| version.to_string()).collect();
        assert_eq!(names, ["3.4.45", "3.6.15"]);
        assert_eq!(found[0].1["file"], "bin/etcd-3.4.45");
        assert_eq!((releases("clusters: {}\n"), releases("etcd_releases:\n")), (None, Some(Vec::new())));
        assert!(has_clusters(BLOCK) && !has_clusters("hosts: {}\n"));
    }

    proptest! {
        /// In whatever order they come: all are listed, and the text around them stays.
        #[test]
        fn all_that_are_added_are_listed(patches in prop::collection::btree_set((4u16..8, 0u16..40), 1..6), seed in any::<u64>()) {
            let mut versions: Vec<Version> =
                patches.into_iter().map(|(minor, patch)| Version { major: 3, minor, patch }).collect();
            let turn = usize::try_from(seed % versions.len() as u64).unwrap();
            versions.rotate_left(turn);
            for start in ["# a\nclusters: {}\n", "etcd_releases: {}\n", "hosts: {}\netcd_releases:\n# b\nvars: {}\n"] {
                let mut text = start.to_owned();
                for version in &versions {
                    text = with_release(&text, *version, &body()).unwrap();
                }
                let mut listed: Vec<Version> = releases(&text).unwrap().into_iter().map(|(version, _)| version).collect();
                listed.sort_unstable();
                let mut wanted = versions.clone();
                wanted.sort_unstable();
                prop_assert_eq!(listed, wanted, "{}", text);
            }
        }
    }
}
