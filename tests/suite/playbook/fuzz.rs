//! Whatever is in the files, the loader ends, and says what is wrong.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::support::{Project, tasks};
use etcdrun::{
    playbook::{LoadOptions, PlaybookSource, load},
    source::{Diagnostics, Sources},
};
use proptest::prelude::*;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/playbook")
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { files_below(&entry, found) } else { found.push(entry) }
    }
    found.sort();
}

/// The corpus as a project of its own, so that a test can spoil one of its files.
fn project() -> (Project, Vec<PathBuf>) {
    let project = Project::new(&[]);
    let mut files = Vec::new();
    files_below(&corpus(), &mut files);
    let names: Vec<PathBuf> = files.iter().map(|file| file.strip_prefix(corpus()).unwrap().to_owned()).collect();
    for (file, name) in files.iter().zip(&names) {
        project.write(name.to_str().unwrap(), &fs::read(file).unwrap());
    }
    (project, names)
}

#[test]
fn the_corpus_is_good() {
    let (project, _) = project();
    let playbook = project.load();
    assert_eq!(playbook.plays.len(), 3);
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!(tasks(&playbook.plays[1]).join("\n"));
    });
}

/// Loads, and insists that a missing playbook comes with an error.
fn load_spoiled(project: &Project, name: &Path, text: &[u8]) {
    project.write(name.to_str().unwrap(), text);
    let mut diagnostics = Diagnostics::default();
    let source = PlaybookSource::from(project.path().join("site.yaml"));
    let options = LoadOptions { start: project.path().to_owned(), ..LoadOptions::new(etcdrun::LIBRARY) };
    let playbook = load(&source, &options, &mut Sources::default(), &mut diagnostics);
    assert_eq!(playbook.broken, diagnostics.has_errors());
}

/// One edit that a person, an editor or a bad merge might make.
#[derive(Clone, Debug)]
enum Edit {
    Cut(usize, usize),
    Insert(usize, String),
    RepeatLine(usize),
    DropLine(usize),
    SwapLines(usize, usize),
    Indent(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let words = prop_oneof![
        "[-a-z{}\\[\\]:,&*!#|>\"'%0-9 \n\t.=]{1,8}",
        prop::sample::select(vec![
            "{{",
            "}}",
            "{%",
            "%}",
            "- block:\n",
            "import_tasks: site.yaml\n",
            "roles: [web]\n",
            "when: ",
            "loop: ",
            "&a ",
            "*a",
            "!age ",
            "null",
            "true",
            "-1",
            "99999999999999999999",
            "hosts: all\n",
            "vars: ",
            "[]",
            "{}",
            "\u{0}",
            "ü",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        (any::<usize>(), 1..30_usize).prop_map(|(at, len)| Edit::Cut(at, len)),
        (any::<usize>(), words).prop_map(|(at, text)| Edit::Insert(at, text)),
        any::<usize>().prop_map(Edit::RepeatLine),
        any::<usize>().prop_map(Edit::DropLine),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::SwapLines(a, b)),
        any::<usize>().prop_map(Edit::Indent),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let boundary = |at: usize| (0..=at % (text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len().max(1);
    match edit {
        Edit::Cut(at, len) => {
            let start = boundary(*at);
            let end = boundary((start + len).min(text.len()));
            return format!("{}{}", &text[..start], &text[end.max(start)..]);
        }
        Edit::Insert(at, new) => {
            let at = boundary(*at);
            return format!("{}{new}{}", &text[..at], &text[at..]);
        }
        _ if lines.is_empty() => {}
        Edit::RepeatLine(line) => lines.insert(line % count, lines[line % count].clone()),
        Edit::DropLine(line) => drop(lines.remove(line % count)),
        Edit::SwapLines(a, b) => lines.swap(a % count, b % count),
        Edit::Indent(line) => lines[line % count].insert_str(0, "  "),
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoiled_files_never_panic(file in any::<prop::sample::Index>(), edits in prop::collection::vec(edit(), 1..6)) {
        let (project, names) = project();
        // The playbook itself is the likeliest to be spoiled.
        let name = if file.index(2) == 0 { Path::new("site.yaml") } else { file.get(&names) };
        let text = fs::read_to_string(project.path().join(name)).unwrap();
        let spoiled = edits.iter().fold(text, |text, edit| apply(&text, edit));
        load_spoiled(&project, name, spoiled.as_bytes());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        load_spoiled(&Project::new(&[]), Path::new("site.yaml"), &bytes);
    }
}
