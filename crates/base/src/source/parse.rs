//! YAML text to nodes.
//!
//! The event parser underneath knows YAML; what is decided here: YAML 1.2 core scalars only (`on`,
//! `yes` and `no` are strings), string keys, no duplicates, one document, and budgets for depth,
//! size and alias expansion so that no input can exhaust memory or stack.

use std::{collections::HashMap, sync::Arc};

use granit_parser::{Event, Parser, ScalarStyle, Span as RawSpan, Tag};

use super::{
    Diagnostic, Diagnostics, Sources, is_sealed,
    node::{Key, Kind, Map, Node},
    sealed::OPENED_TAG,
};
use crate::model::{FileId, MIN_SECRET, Span};

/// The largest file that is read.
pub const MAX_FILE_BYTES: usize = 32 << 20;
const MAX_DEPTH: usize = 100;
const MAX_NODES: usize = 4_000_000;
/// Nodes that aliases may add in all; an alias bomb multiplies, an honest file repeats a little.
const MAX_ALIASED_NODES: usize = 100_000;

/// The key that brings in another mapping.
const MERGE: &str = "<<";

/// Parses one document. Returns what could be read; `diagnostics` has the problems.
pub fn parse(sources: &Sources, file: FileId, diagnostics: &mut Diagnostics) -> Option<Node> {
    let secret = sources.secret_text(file);
    let shown = sources.shared_text(file);
    let text: &str = secret.as_ref().map_or(&shown, |secret| secret);
    if let Some(at) = text.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        diagnostics.push(
            Diagnostic::error(Span::new(file, at, at + 1), "this file is not YAML text: it has a control character")
                .help("it may be a binary file, or still encrypted"),
        );
        return None;
    }
    let mut builder = Builder {
        file,
        parser: Parser::new_from_str(text),
        text,
        sources,
        in_secret_file: secret.is_some(),
        diagnostics,
        anchors: HashMap::new(),
        nodes: 0,
        aliased: 0,
        failed: false,
    };
    let node = builder.document();
    let node = if builder.failed { None } else { node };
    if let Some(node) = &node {
        hide(node, sources, secret.is_none(), diagnostics);
    }
    node
}

/// Has every secret that was opened masked from now on.
fn hide(node: &Node, sources: &Sources, warn: bool, diagnostics: &mut Diagnostics) {
    match &node.kind {
        Kind::Seq(items) => items.iter().for_each(|item| hide(item, sources, warn, diagnostics)),
        Kind::Map(map) => map.iter().for_each(|(_, value)| hide(value, sources, warn, diagnostics)),
        _ if node.is_sealed() || !node.is_secret() => {}
        kind => {
            let text = match kind {
                Kind::String(text) => text.to_string(),
                Kind::Int(number) => number.to_string(),
                Kind::Float(number) => number.to_string(),
                _ => return,
            };
            if !sources.masker().add(&text) && warn {
                let message =
                    format!("this secret has fewer than {MIN_SECRET} characters, too few to be masked in outputs");
                diagnostics.push(Diagnostic::warning(node.span, message).help("choose a longer one"));
            }
        }
    }
}

struct Builder<'t, 'd> {
    file: FileId,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    text: &'t str,
    sources: &'d Sources,
    in_secret_file: bool,
    diagnostics: &'d mut Diagnostics,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    aliased: usize,
    failed: bool,
}

/// A value that aliases refer to, with the number of values in it and its levels.
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

fn height(node: &Node) -> usize {
    let below = match &node.kind {
        Kind::Seq(items) => items.iter().map(height).max(),
        Kind::Map(map) => map.iter().map(|(_, value)| height(value)).max(),
        _ => None,
    };
    below.map_or(0, |below| below + 1)
}

type Spanned<'t> = (Event<'t>, RawSpan);

impl<'t> Builder<'t, '_> {
    fn document(&mut self) -> Option<Node> {
        let mut root = None;
        while let Some((event, raw)) = self.next() {
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    let span = self.span(raw);
                    self.fail(
                        Diagnostic::error(span, "a second YAML document starts here")
                            .help("keep one document per file; a directory of files is merged"),
                    );
                    return None;
                }
                event => root = Some(self.node(event, raw, 0)?),
            }
        }
        if let Some(Node { kind: Kind::Seq(_), span, .. }) = &root
            && self.in_secret_file
        {
            let problem = Diagnostic::error(*span, "only files of variables and of the inventory can be encrypted");
            self.fail(problem.help("keep plays and tasks readable, and put their secrets into a file of variables"));
        }
        // An empty file is an empty document, not an error here: the loader knows what it needs.
        root.or_else(|| Some(Node::new(Span::new(self.file, 0, 0), Kind::Null)))
    }

    fn next(&mut self) -> Option<Spanned<'t>> {
        match self.parser.next_event()? {
            Ok(event) => Some(event),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(0).min(self.text.len());
                let message = format!("this is not valid YAML: {}", error.info());
                let tab = self.text[..at].rsplit('\n').next().is_some_and(|line| line.contains('\t'));
                let help = tab.then(|| "YAML is indented with spaces; there is a tab in this line".to_owned());
                self.fail(Diagnostic::error(Span::new(self.file, at, at + 1), message).maybe_help(help));
                None
            }
        }
    }

    fn fail(&mut self, diagnostic: Diagnostic) {
        self.failed = true;
        self.diagnostics.push(diagnostic);
    }

    fn span(&self, raw: RawSpan) -> Span {
        let start = raw.start.byte_offset().unwrap_or(0);
        let end = raw.end.byte_offset().unwrap_or(start);
        Span::new(self.file, start, end)
    }

    fn node(&mut self, event: Event<'t>, raw: RawSpan, depth: usize) -> Option<Node> {
        let span = self.span(raw);
        self.nodes += 1;
        if depth > MAX_DEPTH {
            self.fail(Diagnostic::error(span, format!("nested more than {MAX_DEPTH} levels deep")));
            return None;
        }
        if self.nodes > MAX_NODES {
            self.fail(Diagnostic::error(span, format!("more than {MAX_NODES} values in one file")));
            return None;
        }
        let before = self.nodes;
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, self.scalar(&text, style, tag.as_deref(), span)),
            Event::SequenceStart(_, anchor, tag) => (anchor, self.sequence(span, tag.as_deref(), depth)?),
            Event::MappingStart(_, anchor, tag) => (anchor, self.mapping(span, tag.as_deref(), depth)?),
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            _ => {
                self.fail(Diagnostic::error(span, "this part of YAML is not supported here"));
                return None;
            }
        };
        if anchor != 0 {
            let anchored = Anchored { node: node.clone(), size: self.nodes - before + 1, height: height(&node) };
            self.anchors.insert(anchor, anchored);
        }
        Some(node)
    }

    /// A value that is not a collection, opened if it is encrypted.
    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
        let node = scalar(text, style, tag, span);
        if self.in_secret_file {
            return self.in_secret_file(node);
        }
        if !node.is_sealed() {
            return node;
        }
        self.open(&node).unwrap_or_else(|problem| {
            self.diagnostics.push(problem);
            node
        })
    }

    fn open(&self, node: &Node) -> Result<Node, Diagnostic> {
        if self.sources.opener().is_none() {
            return Ok(node.clone());
        }
        let sealed = node.as_str().unwrap_or_default();
        if !is_sealed(sealed.as_bytes()) {
            return Err(Diagnostic::error(node.span, "this is not what age writes")
                .help("`etcdrun secret encrypt` prints a value to paste here"));
        }
        let Some(opener) = self.sources.value_opener() else { return Ok(node.clone()) };
        let opened = opener
            .open(sealed.as_bytes())
            .map_err(|error| Diagnostic::error(node.span, error.message).maybe_help(error.help))?;
        let text = std::str::from_utf8(&opened).map_err(|_| {
            Diagnostic::error(node.span, "this secret is not UTF-8 text")
                .help("encrypt it as a separate file, and copy it to the host with `copy`")
        })?;
        Ok(Node { span: node.span, tag: Some(OPENED_TAG.into()), kind: Kind::String(text.into()) })
    }

    /// All that a secret file says is secret; only the names in it are not.
    fn in_secret_file(&mut self, node: Node) -> Node {
        if node.is_template() {
            let warning =
                Diagnostic::warning(node.span, "nothing in an encrypted file is rendered; this stays unchanged");
            self.diagnostics.push(warning.help("put the template into a file that is not encrypted"));
        }
        match node.kind {
            Kind::String(_) | Kind::Int(_) | Kind::Float(_) => Node { tag: Some(OPENED_TAG.into()), ..node },
            _ => node,
        }
    }

    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Option<Node> {
        let Some(Anchored { node, size, height }) = self.anchors.get(&anchor) else {
            self.fail(Diagnostic::error(span, "an alias inside the value it refers to"));
            return None;
        };
        // Aliases of aliases stack up levels that no one line of the file shows.
        if depth + height > MAX_DEPTH {
            self.fail(Diagnostic::error(span, format!("nested more than {MAX_DEPTH} levels deep")));
            return None;
        }
        self.aliased += size;
        if self.aliased > MAX_ALIASED_NODES {
            let message = format!("aliases in this file expand to more than {MAX_ALIASED_NODES} values");
            self.fail(Diagnostic::error(span, message).help("write the values out, or use variables"));
            return None;
        }
        self.nodes += size;
        Some(node.clone())
    }

    fn sequence(&mut self, start: Span, tag: Option<&Tag>, depth: usize) -> Option<Node> {
        let mut items = Vec::new();
        loop {
            let (event, raw) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                let span = self.collection_span(start, raw);
                return Some(Node { span, tag: local_tag(tag), kind: Kind::Seq(items) });
            }
            items.push(self.node(event, raw, depth + 1)?);
        }
    }

    fn mapping(&mut self, start: Span, tag: Option<&Tag>, depth: usize) -> Option<Node> {
        let mut map = Map::default();
        let mut merges = Vec::new();
        let mut seen: HashMap<Arc<str>, Span> = HashMap::new();
        loop {
            let (event, raw) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                let span = self.collection_span(start, raw);
                merges.into_iter().for_each(|(span, value)| self.merge(&mut map, span, value));
                return Some(Node { span, tag: local_tag(tag), kind: Kind::Map(map) });
            }
            let key = self.node(event, raw, depth + 1)?;
            let (event, raw) = self.next()?;
            let value = self.node(event, raw, depth + 1)?;
            let Some(key) = self.key(key) else { continue };
            if &*key.name == MERGE {
                merges.push((key.span, value));
                continue;
            }
            if let Some(first) = seen.insert(key.name.clone(), key.span) {
                // The structure is sound; what else is wrong can still be told.
                self.diagnostics.push(
                    Diagnostic::error(key.span, format!("duplicate key `{}`", key.name))
                        .related(first, "first written here")
                        .help("remove one of them; neither silently wins"),
                );
                continue;
            }
            map.push(key, value);
        }
    }

    /// `<<: *base`: what is not written here comes from there; of several, the first wins.
    fn merge(&mut self, map: &mut Map, span: Span, value: Node) {
        let parts = match value.kind {
            Kind::Seq(items) => items,
            _ => vec![value],
        };
        for part in parts {
            let Kind::Map(entries) = part.kind else {
                let message = format!("`<<` merges mappings, found {}", part.describe());
                self.fail(Diagnostic::error(span, message));
                continue;
            };
            for (key, node) in entries {
                if map.get(&key.name).is_none() {
                    map.push(key, node);
                }
            }
        }
    }

    fn key(&mut self, node: Node) -> Option<Key> {
        let name: Arc<str> = match &node.kind {
            Kind::String(text) => text.clone(),
            Kind::Int(n) => n.to_string().into(),
            Kind::Bool(b) => b.to_string().into(),
            _ => {
                let help = if matches!(node.kind, Kind::Map(_)) {
                    "a value that starts with {{ must be quoted: \"{{ name }}\""
                } else {
                    "keys are words"
                };
                self.fail(Diagnostic::error(node.span, format!("{} cannot be a key", node.describe())).help(help));
                return None;
            }
        };
        Some(Key { name, span: node.span })
    }

    /// From the first token to the last, without the trailing blank lines block ends point after.
    fn collection_span(&self, start: Span, end: RawSpan) -> Span {
        let end = end.end.byte_offset().unwrap_or(0).clamp(start.start as usize, self.text.len());
        let inside = self.text.get(start.start as usize..end).unwrap_or("");
        Span::new(self.file, start.start as usize, start.start as usize + inside.trim_end().len())
    }
}

fn local_tag(tag: Option<&Tag>) -> Option<Arc<str>> {
    let tag = tag?.to_string();
    (!tag.starts_with("tag:yaml.org,2002:") && !tag.starts_with("!!")).then(|| tag.into())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
    let as_string = style != ScalarStyle::Plain || tag.is_some();
    let kind = if as_string { Kind::String(text.into()) } else { plain_scalar(text) };
    Node { span, tag: local_tag(tag), kind }
}

/// The YAML 1.2 core schema: what an unquoted word means.
fn plain_scalar(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Kind::Float(f64::NAN),
        ".inf" | "+.inf" => return Kind::Float(f64::INFINITY),
        "-.inf" => return Kind::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return Kind::String(text.into());
    }
    integer(text).map(Kind::Int).or_else(|| float(text).map(Kind::Float)).unwrap_or_else(|| Kind::String(text.into()))
}

fn integer(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok();
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return i64::from_str_radix(octal, 8).ok();
    }
    let digits = text.trim_start_matches(['-', '+']);
    // `0644` stays a string: YAML 1.1 reads octal there and 1.2 decimal, and a file mode is neither.
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    if leading_zero { None } else { text.parse().ok() }
}

fn float(text: &str) -> Option<f64> {
    let plausible = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) && text.contains(['.', 'e', 'E']);
    if plausible { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Option<Node>, Diagnostics) {
        let mut sources = Sources::default();
        let file = sources.add("t.yaml", text);
        let mut diagnostics = Diagnostics::default();
        let node = parse(&sources, file, &mut diagnostics);
        (node, diagnostics)
    }

    fn messages(text: &str) -> Vec<String> {
        read(text).1.iter().map(|d| d.message.clone()).collect()
    }

    #[test]
    fn words_of_yaml_1_1_stay_strings() {
        let (node, _) = read("{a: on, b: yes, c: 0644, d: 12, e: 1.5, f: ~, g: true, h: 1e3, i: 1.2.3}");
        let value = node.map(|n| n.to_value());
        let expected = serde_json::json!(
            {"a": "on", "b": "yes", "c": "0644", "d": 12, "e": 1.5, "f": null, "g": true, "h": 1000.0, "i": "1.2.3"}
        );
        assert_eq!(value, Some(expected));
    }

    #[test]
    fn spans_point_at_the_text() {
        let text = "a:\n  b: [x, yy]\n\n# comment\nc: |\n  z\n";
        let (node, _) = read(text);
        let node = node.unwrap();
        let list = node.as_map().unwrap().get("a").unwrap().as_map().unwrap().get("b").unwrap();
        assert_eq!(&text[list.span.start as usize..list.span.end as usize], "[x, yy]");
        let second = &list.as_seq().unwrap()[1];
        assert_eq!(&text[second.span.start as usize..second.span.end as usize], "yy");
    }

    #[test]
    fn tags_survive() {
        let (node, _) = read("a: !age |\n  AAAA\nb: !!str 3\n");
        let node = node.unwrap();
        let map = node.as_map().unwrap();
        assert_eq!(map.get("a").unwrap().tag.as_deref(), Some("!age"));
        assert_eq!(map.get("b").unwrap().as_str(), Some("3"));
    }

    #[test]
    fn merge_keys_bring_in_what_is_not_written() {
        let (node, _) = read("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], x: 9}\n");
        let value = node.map(|n| n.to_value());
        assert_eq!(value.unwrap()["c"], serde_json::json!({"x": 9, "y": 2, "z": 4}));
        assert!(messages("a: {<<: 3}")[0].contains("merges mappings"));
    }

    #[test]
    fn every_duplicate_key_is_reported() {
        assert_eq!(messages("a: 1\na: 2\nb: {c: 1, c: 2}\n"), ["duplicate key `a`", "duplicate key `c`"]);
    }

    #[test]
    fn hostile_input_is_refused() {
        assert!(messages(&"[".repeat(100_000))[0].contains("YAML") || messages(&"[".repeat(500))[0].contains("nested"));
        assert!(messages(&format!("{}x{}", "- ".repeat(150), ""))[0].contains("nested"));
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..10 {
            let list = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb += &format!("a{n}: &a{n} [{list}]\n");
        }
        assert!(messages(&bomb)[0].contains("aliases"));
        let mut tower = format!("a0: &a0 {}x{}\n", "[".repeat(90), "]".repeat(90));
        for n in 1..40 {
            tower += &format!("a{n}: &a{n} {}*a{}{}\n", "[".repeat(90), n - 1, "]".repeat(90));
        }
        assert!(messages(&tower)[0].contains("nested"));
        assert!(messages("a: \u{0}\u{1}")[0].contains("not YAML text"));
        assert!(messages("---\na: 1\n---\nb: 2\n")[0].contains("second YAML document"));
        assert!(messages("a: {{ b }}\n")[0].contains("cannot be a key"));
        assert!(messages("a: *nowhere\n")[0].contains("not valid YAML"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z{}\\[\\]:,&*!#|>\"' \\n\\t-]{0,200}") {
            let _ = read(&text);
        }

        #[test]
        fn spans_stay_inside(text in "([a-zü]{1,3}: ?[\\[{\"']?[a-z0-9]{0,4}[\\]}\"']?\n){0,6}") {
            if let (Some(node), _) = read(&text) {
                prop_assert!(node.span.end as usize <= text.len());
            }
        }
    }
}
