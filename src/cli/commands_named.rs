//! Commands that texts name are commands that the program takes: in the docs, in help, in messages, in playbooks. And flags that many
//! commands take are the same everywhere.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::error::ErrorKind;

use super::{command, parse};

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, extension, found);
            } else if entry.extension().is_some_and(|it| it == extension) {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), extension, &mut found);
    found
}

/// Words as a shell sees them, as far as quotes go; `None` if it would see more than one command, or the text is cut short.
fn words(line: &str) -> Option<Vec<String>> {
    let ends = [" #", " | ", " >"];
    let line = ends.iter().fold(line, |line, end| line.split(end).next().unwrap_or(line)).trim();
    let is_no_line = ["...", "…", "&&", "$", "[", "COMMAND", "{{"].iter().any(|part| line.contains(part));
    if is_no_line {
        return None;
    }
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (' ', None) => words.push(String::new()),
            (letter, _) => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    Some(words)
}

/// What is wrong with a command line. A bare mention (`etcdrun member replace`) need not be complete.
fn problem(line: &str, may_be_mention: bool) -> Option<String> {
    let words = words(line)?;
    // A number or a name that is filled in.
    let filled = words.iter().map(|word| word.replace("{id:x}", "1").replace("{:x}", "1"));
    let filled = filled.map(|word| match word.contains('{') && !word.contains(':') {
        true => "x".to_owned(),
        false => word,
    });
    let error = parse(filled.map(OsString::from)).err()?;
    let is_mention = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!(is_help || is_mention && may_be_mention)).then(|| format!("`{line}`: {error}"))
}

/// The text in backticks that begins like this.
fn spans<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
    text.split('`').skip(1).step_by(2).filter(|span| span.starts_with(begin) && !span.contains('\n')).collect()
}

#[test]
fn every_command_line_of_the_docs_is_one() {
    let mut seen = 0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in files("docs", "md").into_iter().chain(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name))) {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.starts_with("    etcdrun ")) {
            assert_eq!(problem(line.trim(), false), None, "{}", path.display());
            seen += 1;
        }
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.starts_with("```")) {
            for span in spans(&paragraph.replace('\n', " "), "etcdrun ") {
                assert_eq!(problem(span, true), None, "{}", path.display());
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn every_example_of_help_is_one() {
    fn check(command: &clap::Command, seen: &mut usize) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  etcdrun ")) {
            assert_eq!(problem(line.trim(), false), None);
            *seen += 1;
        }
        command.get_subcommands().for_each(|inner| check(inner, seen));
    }
    let mut seen = 0;
    check(&command(), &mut seen);
    assert!(seen > 20, "{seen}");
}

/// Text of the program's own, without comments.
fn texts() -> impl Iterator<Item = (PathBuf, String)> {
    let all = files("src", "rs")
        .into_iter()
        .chain(files("crates", "rs"))
        .chain(files("roles", "yaml"))
        .chain(files("playbooks", "yaml"));
    all.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let is_text = |line: &&str| !line.trim_start().starts_with("//") && !line.trim_start().starts_with('#');
        (path, text.lines().filter(is_text).map(|line| format!("{line}\n")).collect())
    })
}

#[test]
fn every_command_line_of_a_message_is_one() {
    let mut seen = 0;
    for (path, text) in texts() {
        for line in text.lines() {
            for span in spans(line, "etcdrun ") {
                // Which of several flags it is is put in.
                if !span.contains("{flag}") && !span.contains("{verb}") && !span.contains("{command}") {
                    assert_eq!(problem(span, true), None, "{}", path.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn no_message_names_a_bare_etcdctl() {
    for (path, text) in texts() {
        // A cluster that is about to be taken over is in no inventory yet.
        if path.ends_with("membership/told.rs") || path.ends_with("commands_named.rs") {
            continue;
        }
        for line in text.lines() {
            assert!(spans(line, "etcdctl ").is_empty(), "{}: {line}", path.display());
        }
    }
}

/// The commands that take a flag, and its help there.
fn takers(command: &clap::Command, path: &str, flag: &str, found: &mut Vec<(String, String)>) {
    for inner in command.get_subcommands() {
        let path = format!("{path} {}", inner.get_name()).trim().to_owned();
        if let Some(arg) = inner.get_arguments().find(|arg| arg.get_long() == Some(flag)) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            found.push((path.clone(), help));
        }
        takers(inner, &path, flag, found);
    }
}

#[test]
fn a_flag_is_the_same_everywhere_and_docs_say_where() {
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md")).unwrap();
    for flag in ["yes", "extra-vars", "check", "limit"] {
        let mut found = Vec::new();
        takers(&command(), "", flag, &mut found);
        assert!(found.iter().all(|(_, help)| *help == found[0].1), "--{flag}: {found:#?}");
        let row = docs.lines().find(|line| line.starts_with("| `-") && line.contains(&format!("`--{flag}`"))).unwrap();
        let mut named = spans(row.rsplit('|').nth(1).unwrap(), "");
        let mut taken: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        named.sort_unstable();
        taken.sort_unstable();
        assert_eq!(named, taken, "--{flag}: docs/cli.md, and what commands take");
    }
}
