//! `-e`: variables of the command line, which win over all others.

use std::path::Path;

use crate::{
    inventory::RESERVED_VARS,
    model::Span,
    modules::split_words,
    source::{Diagnostic, Diagnostics, Kind, Node, Sources, Vars, parse},
};

/// Parses every `-e`; later ones win.
pub fn parse_extra_vars(given: &[String], sources: &mut Sources, diagnostics: &mut Diagnostics) -> Vars {
    let mut vars = Vars::default();
    for text in given {
        match extra_vars(text, sources, diagnostics) {
            Ok(more) => {
                more.iter().for_each(|(name, node)| check_name(name, node.span, diagnostics));
                vars.extend(more);
            }
            Err(problem) => diagnostics.push(problem),
        }
    }
    vars
}

/// A name that templates could not use, or that is not one's to set, would be ignored without a word.
fn check_name(name: &str, span: Span, diagnostics: &mut Diagnostics) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_word) {
        let problem = Diagnostic::error(span, format!("`{name}` cannot be the name of a variable"));
        diagnostics
            .push(problem.help("names consist of letters, digits and underscores, and do not start with a digit"));
    } else if RESERVED_VARS.contains(&name) {
        let problem = Diagnostic::error(span, format!("`{name}` is built in and cannot be set"));
        diagnostics.push(problem.help(format!("choose another name; reserved are {}", RESERVED_VARS.join(", "))));
    }
}

/// `@FILE`, a YAML or JSON mapping, or `key=value` pairs, told apart as Ansible does: by how it starts.
fn extra_vars(text: &str, sources: &mut Sources, diagnostics: &mut Diagnostics) -> Result<Vars, Diagnostic> {
    let file = match text.strip_prefix('@') {
        Some(path) => sources.read(Path::new(path))?,
        None => sources.add("-e", text),
    };
    let is_yaml = text.starts_with(['@', '{', '[']);
    if !is_yaml && text.contains('=') {
        return pairs(text, Span::new(file, 0, text.len()));
    }
    let Some(node) = parse(sources, file, diagnostics) else {
        // The parser has said why; an empty file is an empty mapping.
        return Ok(Vars::default());
    };
    let span = node.span;
    match node.kind {
        Kind::Map(map) => Ok(map.into_iter().map(|(key, value)| (key.name, value)).collect()),
        Kind::Null => Ok(Vars::default()),
        _ => Err(Diagnostic::error(span, format!("variables are a mapping, found {}", node.describe()))
            .help("write key=value, a YAML mapping like `{key: value}`, or @FILE")),
    }
}

/// `key=value` pairs as a shell would split them. The values are strings, as in Ansible.
pub fn pairs(text: &str, span: Span) -> Result<Vars, Diagnostic> {
    let words = split_words(text).map_err(|error| Diagnostic::error(span, error.message))?;
    let mut vars = Vars::default();
    for word in words {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Diagnostic::error(span, format!("`{word}` is not of the form key=value"))
                .help("quote a value that has blanks in it: key='two words'"));
        };
        vars.insert(key.into(), Node::string(span, value));
    }
    Ok(vars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ValueMap;

    fn read(given: &[&str]) -> (String, usize) {
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
        let vars = parse_extra_vars(&given, &mut sources, &mut diagnostics);
        let values: ValueMap = vars.iter().map(|(name, node)| (name.to_string(), node.to_value())).collect();
        (serde_json::to_string(&values).unwrap(), diagnostics.iter().count())
    }

    #[test]
    fn names_that_would_be_ignored_are_errors() {
        assert_eq!(read(&["groups=5"]).1, 1);
        assert_eq!(read(&["1a=2", "{a-b: c}"]).1, 2);
        assert_eq!(read(&["fine_1=2"]).1, 0);
    }

    #[test]
    fn pairs_mappings_and_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vars.yaml");
        std::fs::write(&file, "c: 3\na: from the file\n").unwrap();
        let file = format!("@{}", file.display());
        let (vars, problems) = read(&["a=1 b='two words'", "{d: [1, 2], e: {f: null}}", r#"{"g": true}"#, &file]);
        assert_eq!(problems, 0);
        assert_eq!(vars, r#"{"a":"from the file","b":"two words","d":[1,2],"e":{"f":null},"g":true,"c":3}"#);
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in ["justaword", "a=1 b", "=1", "[1, 2]", "{a: 1", "@/does/not/exist", "a='1"] {
            assert_eq!(read(&[wrong]), ("{}".to_owned(), 1), "{wrong}");
        }
    }
}
